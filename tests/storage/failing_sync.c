/* Loaded in front of the C library: as many syncs as a test asks for fail, after the kernel has
   the bytes. That is what a disk does that dies between a write and its sync. */
#include <errno.h>

int failingSyncs = 0;

static int sync_or_fail(void)
{
    if (failingSyncs <= 0)
        return 0;
    failingSyncs -= 1;
    errno = EIO;
    return -1;
}

int fsync(int descriptor) { (void)descriptor; return sync_or_fail(); }
int fdatasync(int descriptor) { (void)descriptor; return sync_or_fail(); }
