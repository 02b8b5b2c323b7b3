/* What is to be done, as benchmarks/loader/_plan.py writes it: little-endian, in this order. */
#include "loader.h"

#include <stdlib.h>

static void take(FILE *input, void *place, size_t size) {
    if (size && fread(place, size, 1, input) != 1)
        fail("the plan is cut off");
}

static Text takeText(FILE *input) {
    uint64_t size;
    take(input, &size, sizeof size);
    uint8_t *bytes = need(size + 1);
    take(input, bytes, size);
    return (Text){bytes, size};
}

Plan readPlan(FILE *input) {
    uint32_t numbers[9];
    Plan plan = {0};
    take(input, numbers, sizeof numbers);
    plan.wire = numbers[0];
    plan.connections = numbers[1];
    plan.window = numbers[2];
    plan.frames = numbers[3];
    plan.isOwn = numbers[4];
    plan.events = numbers[5];
    plan.wantedTimes = numbers[6];
    plan.lead = numbers[7];
    plan.place = numbers[8];
    take(input, &plan.seconds, sizeof plan.seconds);
    take(input, &plan.limit, sizeof plan.limit);
    plan.wanted = takeText(input);
    plan.unwanted = takeText(input);
    plan.bytes = takeText(input).bytes;
    size_t count = (size_t)plan.frames * (plan.isOwn ? plan.connections : 1) + 1;
    uint64_t *starts = need(count * sizeof *starts);
    take(input, starts, count * sizeof *starts);
    plan.starts = starts;
    int32_t *sockets = need(plan.connections * sizeof *sockets);
    take(input, sockets, plan.connections * sizeof *sockets);
    plan.sockets = sockets;
    if (!plan.connections || !plan.window || !plan.frames)
        fail("the plan has no connections, no window or no frames");
    return plan;
}
