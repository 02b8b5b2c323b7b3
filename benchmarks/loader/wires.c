/* The protocols: where an answer ends, whether it is a good one, and for which request it is. */
#define _GNU_SOURCE
#include "loader.h"

#include <string.h>
#include <strings.h>

static _Noreturn void failWith(const char *what, const uint8_t *bytes, size_t size) {
    char shown[301];
    size_t count = size < sizeof shown - 1 ? size : sizeof shown - 1;
    for (size_t i = 0; i < count; i++)
        shown[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '.';
    shown[count] = 0;
    fail("%s: %s", what, shown);
}

static int beginsWith(const uint8_t *bytes, size_t size, const char *start) {
    size_t length = strlen(start);
    return size >= length && !memcmp(bytes, start, length);
}

/* Whether it may be, as far as it is there. */
static int mayBegin(const uint8_t *bytes, size_t size, const char *start) {
    size_t length = strlen(start);
    return !memcmp(bytes, start, size < length ? size : length);
}

static uint64_t readNumber(const uint8_t *bytes, const uint8_t *end) {
    const uint8_t *start = bytes;
    uint64_t value = 0;
    while (bytes < end && *bytes >= '0' && *bytes <= '9' && value < UINT32_MAX)
        value = value * 10 + (uint64_t)(*bytes++ - '0');
    if (bytes == start)
        failWith("not a number", start, (size_t)(end - start));
    return value;
}

static uint32_t countOf(const Text *text, const uint8_t *bytes, const uint8_t *end) {
    uint32_t count = 0;
    while ((bytes = memmem(bytes, (size_t)(end - bytes), text->bytes, text->size))) {
        bytes += text->size;
        count++;
    }
    return count;
}

static enum found splitHttp(const Plan *plan, const uint8_t *bytes, size_t size, Answer *answer) {
    static const char name[] = "\r\ncontent-length: ";
    if (!mayBegin(bytes, size, "HTTP/1.1 200 "))
        failWith("an answer has another status than 200", bytes, size);
    const uint8_t *blank = memmem(bytes, size, "\r\n\r\n", 4);
    if (!blank)
        return MORE;
    const uint8_t *field = bytes;
    while ((field = memchr(field, '\r', (size_t)(blank - field)))) {
        if (!strncasecmp((const char *)field, name, sizeof name - 1))
            break;
        field++;
    }
    if (!field)
        failWith("an answer has no length", bytes, size);
    uint64_t length = readNumber(field + sizeof name - 1, blank);
    const uint8_t *body = blank + 4;
    if (size - (size_t)(body - bytes) < length)
        return MORE;
    const uint8_t *end = body + length;
    if (countOf(&plan->wanted, body, end) != plan->wantedTimes ||
        (plan->unwanted.size && countOf(&plan->unwanted, body, end)))
        failWith("a wrong answer", body, length);
    answer->size = (size_t)(end - bytes);
    return ANSWER;
}

/* XADD is answered with the id of the entry, a bulk string. */
static enum found splitResp(const uint8_t *bytes, size_t size, Answer *answer) {
    if (bytes[0] != '$' || (size > 1 && bytes[1] == '-'))
        failWith("not an id", bytes, size);
    const uint8_t *line = memmem(bytes, size, "\r\n", 2);
    if (!line)
        return MORE;
    answer->size = (size_t)(line - bytes) + 2 + readNumber(bytes + 1, line) + 2;
    return size < answer->size ? MORE : ANSWER;
}

/* A publish is answered by a message to its own inbox, of which the name ends with its number. */
static enum found splitNats(const Plan *plan, const uint8_t *bytes, size_t size, Answer *answer) {
    const uint8_t *line = memmem(bytes, size, "\r\n", 2);
    if (!line)
        return MORE;
    size_t head = (size_t)(line - bytes);
    if (beginsWith(bytes, size, "PING\r\n")) {
        answer->size = head + 2;
        return NOTHING;
    }
    if (!beginsWith(bytes, size, "MSG "))
        failWith("not an acknowledgement", bytes, size);
    const uint8_t *length = memrchr(bytes, ' ', head);
    const uint8_t *subject = memchr(bytes + 4, ' ', head - 4);
    const uint8_t *dot = subject ? memrchr(bytes + 4, '.', (size_t)(subject - bytes) - 4) : NULL;
    if (!dot)
        failWith("an acknowledgement for nothing", bytes, size);
    answer->size = head + 2 + readNumber(length + 1, line) + 2;
    if (size < answer->size)
        return MORE;
    const uint8_t *body = line + 2, *end = bytes + answer->size;
    if (countOf(&plan->wanted, body, end) != plan->wantedTimes ||
        countOf(&plan->unwanted, body, end))
        failWith("a wrong acknowledgement", body, (size_t)(end - body));
    answer->number = (int64_t)readNumber(dot + 1, subject);
    return ANSWER;
}

/* basic.ack on channel 1, of delivery tags from 1; C{number} is that of the publish, from 0, ever
 * rising. */
static enum found splitAmqp(const uint8_t *bytes, size_t size, Answer *answer) {
    static const uint8_t head[] = {1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80};
    answer->size = sizeof head + 8 + 1 + 1;
    if (memcmp(bytes, head, size < sizeof head ? size : sizeof head))
        failWith("not basic.ack", bytes, size);
    if (size < answer->size)
        return MORE;
    uint64_t tag = 0;
    for (size_t i = 0; i < 8; i++)
        tag = tag << 8 | bytes[sizeof head + i];
    answer->number = (int64_t)tag - 1;
    answer->isForAll = bytes[sizeof head + 8] & 1;
    return ANSWER;
}

static enum found splitMqtt(const uint8_t *bytes, size_t size, Answer *answer) {
    if (bytes[0] != 0x40 || (size > 1 && bytes[1] != 2))
        failWith("not PUBACK", bytes, size);
    if (size < 4)
        return MORE;
    answer->size = 4;
    answer->number = (bytes[2] << 8 | bytes[3]) - 1;
    return ANSWER;
}

static enum found splitStomp(const uint8_t *bytes, size_t size, Answer *answer) {
    static const char name[] = "\nreceipt-id:";
    if (bytes[0] == '\n') {
        answer->size = 1;
        return NOTHING;
    }
    if (!mayBegin(bytes, size, "RECEIPT\n"))
        failWith("not a receipt", bytes, size);
    const uint8_t *end = memchr(bytes, 0, size);
    if (!end)
        return MORE;
    const uint8_t *field = memmem(bytes, (size_t)(end - bytes), name, sizeof name - 1);
    if (!field)
        failWith("a receipt for nothing", bytes, size);
    answer->number = (int64_t)readNumber(field + sizeof name - 1, end);
    answer->size = (size_t)(end - bytes) + 1;
    return ANSWER;
}

enum found split(const Plan *plan, const uint8_t *bytes, size_t size, Answer *answer) {
    *answer = (Answer){.number = -1};
    if (!size)
        return MORE;
    switch (plan->wire) {
    case HTTP:
        return splitHttp(plan, bytes, size, answer);
    case RESP:
        return splitResp(bytes, size, answer);
    case NATS:
        return splitNats(plan, bytes, size, answer);
    case AMQP:
        return splitAmqp(bytes, size, answer);
    case MQTT:
        return splitMqtt(bytes, size, answer);
    case STOMP:
        return splitStomp(bytes, size, answer);
    case FAN:
        break;
    }
    fail("there is no such protocol");
}
