/* test-gpu-namespaces.c - clients on a GPU that are each pid 1 of a pid namespace of their own, as
 * containers make them (T27): what tells them apart is their connection, so the end of one leaves
 * the other's memory and products as they are. Where CUDA opens no IPC handle across namespaces,
 * the refusal has to say so. Each has a /proc of its own as well, without which CUDA does not
 * start. Skipped without a GPU, or without the right to make namespaces. The parent never uses
 * CUDA: it forks. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/gpu/gpu.h"
#include "tests/harness/model.h"
#include "tests/harness/status_document.h"
#include "tests/harness/tiny.h"

#define N_CLIENTS      2u
#define SETTLE_SECONDS 5.0
#define LIFE_SECONDS   60u

static struct fixture fixture;
static struct test_model model;

static int set_up(void **state)
{
    (void)state;
    return tiny_start(&fixture, &model, 1, "devices = cuda:0\n");
}

static int tear_down(void **state)
{
    (void)state;
    return tiny_stop(&fixture, &model);
}

/* A client's x and y, of one kind. */
struct life {
    struct product product;
    struct gpu_buffer x;
    struct gpu_buffer y;
};

static bool life_run(struct life *life, gemmd_client_t *client)
{
    struct product *product = &life->product;
    struct gemmd_gemm gemm = product->gemm;
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    gemm.x = life->x.buffer;
    gemm.y = life->y.buffer;
    product_clear(product);
    return gpu_copy(gemmd_buffer_data(life->y.buffer), gemmd_buffer_data(product->y), y_bytes) &&
           gemmd_gemm(client, &gemm) == GEMMD_OK &&
           gpu_copy(gemmd_buffer_data(product->y), gemmd_buffer_data(life->y.buffer), y_bytes) &&
           product_is_right(product);
}

static bool life_init(struct life *life, gemmd_client_t *client, enum gpu_kind kind)
{
    struct product *product = &life->product;
    const struct product_shape shape = {
        .m = 3, .x_dtype = GEMMD_BF16, .y_dtype = GEMMD_F32, .seed = 8};
    if (!product_init(product, client, "tiny", &model.weights[TEST_INT4], &shape)) {
        return false;
    }
    uint64_t x_bytes = gemmd_buffer_bytes(product->x);
    return gpu_buffer_init(&life->x, client, kind, x_bytes) &&
           gpu_buffer_init(&life->y, client, kind, gemmd_buffer_bytes(product->y)) &&
           gpu_copy(gemmd_buffer_data(life->x.buffer), gemmd_buffer_data(product->x), x_bytes);
}

/* The kinds that this client has; those of IPC may be refused, with the reason. */
static bool live(struct life lives[GPU_KINDS], gemmd_client_t *client, bool has_kind[GPU_KINDS])
{
    for (int kind = 0; kind < GPU_KINDS; kind++) {
        has_kind[kind] = life_init(&lives[kind], client, (enum gpu_kind)kind);
        bool is_told =
            kind == GPU_IPC && strstr(gemmd_last_error(), "cannot open the buffer's CUDA IPC");
        if (!has_kind[kind] && !is_told) {
            (void)fprintf(stderr, "kind %d: %s\n", kind, gemmd_last_error());
            return false;
        }
    }
    return true;
}

/* Says so once all kinds are there, then multiplies until told to stop, or until killed. */
static bool live_on(gemmd_client_t *client, int stop_fd)
{
    struct life lives[GPU_KINDS];
    bool has_kind[GPU_KINDS];
    char byte;
    bool is_right = live(lives, client, has_kind) && write(stop_fd, "r", 1) == 1;
    while (is_right && recv(stop_fd, &byte, 1, MSG_DONTWAIT) != 1) {
        for (int kind = 0; is_right && kind < GPU_KINDS; kind++) {
            is_right = !has_kind[kind] || life_run(&lives[kind], client);
        }
    }
    if (!is_right) {
        (void)fprintf(stderr, "pid 1: %s\n", gemmd_last_error());
    }
    return is_right;
}

static bool mount_proc(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

/* By hand, since fork() takes no flags; no other thread is there to hold a lock at this moment. */
static pid_t start_as_pid_1(int stop_fd)
{
    (void)fflush(NULL);
    pid_t pid =
        (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LIFE_SECONDS);
        if (!mount_proc()) {
            _exit(write(stop_fd, "n", 1) == 1 ? 0 : 1);
        }
        gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
        bool is_right = getpid() == 1 && live_on(client, stop_fd);
        gemmd_close(client);
        _exit(is_right ? 0 : 1);
    }
    return pid;
}

static void test_two_clients_with_pid_1(void **state)
{
    (void)state;
    pid_t pids[N_CLIENTS];
    int ends[N_CLIENTS][2];
    char byte;
    int child;
    struct status_counts before, after;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
        pids[i] = start_as_pid_1(ends[i][1]);
        (void)close(ends[i][1]);
        if (pids[i] < 0) {
            skip(); /* namespaces want a right that we do not have */
        }
        assert_int_equal(read(ends[i][0], &byte, 1), 1);
        if (byte == 'n') {
            print_message("note: no /proc can be mounted here\n");
            skip();
        }
    }
    status_counts_read(&fixture, &before);
    assert_int_equal(kill(pids[0], SIGKILL), 0);
    assert_int_equal(waitpid(pids[0], &child, 0), pids[0]);
    double deadline = fixture_now() + SETTLE_SECONDS;
    do {
        status_counts_read(&fixture, &after);
    } while (after.n_sessions > N_CLIENTS && fixture_now() < deadline);
    assert_int_equal(after.n_sessions, N_CLIENTS); /* the one that lives, and the one that asks */
    assert_int_equal(after.n_buffers, before.n_buffers / N_CLIENTS);
    assert_int_equal(write(ends[1][0], "s", 1), 1);
    assert_int_equal(waitpid(pids[1], &child, 0), pids[1]);
    assert_int_equal(child, 0);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        (void)close(ends[i][0]);
    }
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_clients_with_pid_1)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
