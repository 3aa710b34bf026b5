/* A proxy on loopback that simulates a network line with latency and limited bandwidth.
 *
 *     cc -O2 -o delayline delayline.c
 *     delayline HOST PORT DELAY_MS RATE
 *
 * It listens on a free port of 127.0.0.1, prints the port, and forwards every connection to HOST:PORT. Bytes arrive
 * DELAY_MS later in each direction. Each connection carries at most RATE bytes a second from the server (0: no limit).
 * The proxy ends when its standard input closes. It uses one thread and one epoll, and allocates memory only for new
 * connections. Each direction holds at most SLOTS pieces of PIECE bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 * 1024, SLOTS = 64 };

struct piece {
    uint64_t due;
    size_t length, sent;
    char bytes[PIECE];
};

struct flow {               /* one direction of a connection */
    int from, to;
    uint64_t rate, last;    /* bytes a second; when the last piece of data is due */
    unsigned head, count;
    int ended, shut;        /* the sender has closed; this was forwarded */
    struct piece pieces[SLOTS];
};

struct pair {
    struct flow up, down;
    struct pair *next;
    int broken;
};

static uint64_t delay;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void quiet(int fd) {
    int one = 1;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Read the bytes that have arrived. Returns 0 if the connection broke. */
static int take(struct flow *flow) {
    while (!flow->ended && flow->count < SLOTS) {
        struct piece *piece = &flow->pieces[(flow->head + flow->count) % SLOTS];
        ssize_t got = read(flow->from, piece->bytes, PIECE);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR;
        if (got == 0) {
            flow->ended = 1;
            break;
        }
        uint64_t at = now();
        if (flow->rate) {
            uint64_t begin = flow->last > at ? flow->last : at;
            flow->last = begin + (uint64_t)got * 1000000000u / flow->rate;
            at = flow->last;
        }
        piece->due = at + delay;
        piece->length = (size_t)got;
        piece->sent = 0;
        flow->count++;
    }
    return 1;
}

/* Send the pieces that are due, and lower *wake to the time when the next one is. Returns 0 if the connection broke. */
static int give(struct flow *flow, uint64_t *wake) {
    while (flow->count) {
        struct piece *piece = &flow->pieces[flow->head];
        if (piece->due > now()) {
            if (piece->due < *wake)
                *wake = piece->due;
            return 1;
        }
        ssize_t sent = send(flow->to, piece->bytes + piece->sent, piece->length - piece->sent, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        piece->sent += (size_t)sent;
        if (piece->sent == piece->length) {
            flow->head = (flow->head + 1) % SLOTS;
            flow->count--;
        }
    }
    if (flow->ended && !flow->shut) {
        shutdown(flow->to, SHUT_WR);
        flow->shut = 1;
    }
    return 1;
}

static void watch(int epoll, int fd, struct pair *pair) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = pair};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
        perror("delayline: epoll_ctl");
        exit(1);
    }
}

static struct pair *joined(int epoll, int client, const struct sockaddr_in *server, uint64_t rate) {
    struct pair *pair = calloc(1, sizeof *pair);
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!pair || out < 0 || connect(out, (const struct sockaddr *)server, sizeof *server)) {
        close(client);
        if (out >= 0)
            close(out);
        free(pair);
        return NULL;
    }
    quiet(client);
    quiet(out);
    pair->up.from = pair->down.to = client;
    pair->up.to = pair->down.from = out;
    pair->down.rate = rate;
    watch(epoll, client, pair);
    watch(epoll, out, pair);
    return pair;
}

int main(int argc, char **argv) {
    struct sockaddr_in server = {.sin_family = AF_INET}, mine = {.sin_family = AF_INET};
    socklen_t length = sizeof mine;
    if (argc != 5 || !inet_aton(argv[1], &server.sin_addr)) {
        fprintf(stderr, "usage: delayline ADDRESS PORT DELAY_MS RATE\n");
        return 2;
    }
    server.sin_port = htons((uint16_t)atoi(argv[2]));
    delay = (uint64_t)(atof(argv[3]) * 1e6);
    uint64_t rate = strtoull(argv[4], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    mine.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (door < 0 || epoll < 0 || bind(door, (struct sockaddr *)&mine, sizeof mine) || listen(door, 512) ||
        getsockname(door, (struct sockaddr *)&mine, &length)) {
        perror("delayline");
        return 1;
    }
    struct epoll_event at_door = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event at_end = {.events = EPOLLIN | EPOLLHUP, .data.ptr = &at_end};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, door, &at_door) || epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &at_end)) {
        perror("delayline: standard input must be a pipe");
        return 1;
    }
    printf("%d\n", ntohs(mine.sin_port));
    fflush(stdout);
    struct pair *pairs = NULL;
    uint64_t wake = UINT64_MAX;
    for (;;) {
        struct epoll_event events[256];
        struct timespec pause = {0}, *until = NULL;
        if (wake != UINT64_MAX) {
            uint64_t here = now(), left = wake > here ? wake - here : 0;
            pause.tv_sec = (time_t)(left / 1000000000u);
            pause.tv_nsec = (long)(left % 1000000000u);
            until = &pause;
        }
        int count = epoll_pwait2(epoll, events, 256, until, NULL);
        for (int n = 0; n < count; n++) {
            if (events[n].data.ptr == &at_end)
                return 0;
            int client;
            while (!events[n].data.ptr && (client = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                struct pair *pair = joined(epoll, client, &server, rate);
                if (pair) {
                    pair->next = pairs;
                    pairs = pair;
                }
            }
        }
        wake = UINT64_MAX;
        for (struct pair **at = &pairs; *at;) { /* at most a few hundred, so check all each time */
            struct pair *pair = *at;
            int fine = take(&pair->up) && take(&pair->down) && give(&pair->up, &wake) && give(&pair->down, &wake) &&
                       take(&pair->up) && take(&pair->down);
            if (fine && !(pair->up.shut && pair->down.shut)) {
                at = &pair->next;
                continue;
            }
            *at = pair->next;
            close(pair->up.from);
            close(pair->up.to);
            free(pair);
        }
    }
}
