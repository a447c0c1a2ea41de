/* test-adoption.c - what one daemon had kept and the next one finds: whole, damaged, incomplete, of
 * another format, from a reload that was cut short, or in use by somebody else. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/unix.h"
#include "tests/harness/control_job.h"
#include "tests/harness/fake_supervisor.h"
#include "tests/harness/status_document.h"
#include "tests/integ/life_case.h"

#define N_KEPT (TEST_WEIGHTS + 1u) /* regions and a manifest */

static struct fake_supervisor supervisor;

static int set_up(void **state)
{
    int r = life_set_up(state);
    struct life *life = *state;
    fake_supervisor_init(&supervisor);
    fake_supervisor_manage(&supervisor, &life->options);
    return r;
}

static int tear_down(void **state)
{
    int r = life_tear_down(state);
    fake_supervisor_finish(&supervisor);
    return r;
}

/* The supervisor's socket holds few messages, so they are read while the daemon gets ready. */
static void start(struct life *life)
{
    uint32_t n = supervisor.n_ready;
    fixture_spawn(&life->fixture, &life->options);
    fake_supervisor_await(&supervisor, &life->fixture, &supervisor.n_ready, n + 1);
}

/* Start one, and die of SIGKILL: what it had kept is in supervisor.store. */
static void leave_weights(struct life *life)
{
    start(life);
    assert_true(life_serves(life));
    fixture_kill(&life->fixture);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
}

static void expect_origin(const struct life *life, const char *origin)
{
    json_t *document = status_document_read(&life->fixture);
    const json_t *model = json_array_get(json_object_get(document, "models"), 0);
    assert_string_equal(json_string_value(json_object_get(model, "origin")), origin);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(document, "start"), "adopted_models")),
        strcmp(origin, "adopted") == 0);
    json_decref(document);
}

/* The next one serves right products, of weights from there, and keeps as much as the first. */
static void expect_restart(struct life *life, const char *origin)
{
    start(life);
    assert_true(life_serves(life));
    expect_origin(life, origin);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

static void test_adopted(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    for (uint32_t i = 0; i < 3; i++) {
        expect_restart(life, "adopted");
    }
}

/* A model that nobody configured, and whose checkpoint has gone, lives on as well. */
static void test_loaded_by_hand(void **state)
{
    struct life *life = *state;
    char text[600];
    leave_weights(life);
    life->options.model = NULL;
    (void)snprintf(text, sizeof(text), "%s/model.safetensors", life->model.path);
    assert_int_equal(unlink(text), 0);
    start(life);
    assert_true(life_serves(life));
    expect_origin(life, "adopted");
    assert_int_equal(fixture_logged(&life->fixture, "has changed since"), 1);
    assert_int_equal(
        fixture_logged(&life->fixture, "model 'tiny' is adopted and not in the configuration"), 1);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_int_equal(control_verb(client, MSG_VERB_UNLOAD, "tiny"), 0);
    gemmd_close(client);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, 0);
}

static void test_flipped_byte(void **state)
{
    struct life *life = *state;
    uint8_t byte;
    leave_weights(life);
    int fd = fake_supervisor_find(&supervisor, "w.")->fd;
    assert_int_equal(pread(fd, &byte, 1, 777), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, 777), 1);
    expect_restart(life, "loaded");
    assert_int_equal(fixture_logged(&life->fixture, "has changed"), 1);
    expect_restart(life, "adopted");
}

static void test_missing_region(void **state)
{
    struct life *life = *state;
    char name[FDSTORE_NAME_BYTES];
    leave_weights(life);
    (void)snprintf(name, sizeof(name), "%s", fake_supervisor_find(&supervisor, "w.")->name);
    fdstore_remove(&supervisor.store, name);
    expect_restart(life, "loaded");
    assert_int_equal(fixture_logged(&life->fixture, "is not there"), 1);
}

/* Regions that no manifest makes a model of are memory that nobody would give back. */
static void test_missing_manifest(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    fdstore_remove(&supervisor.store, fake_supervisor_find(&supervisor, "m.")->name);
    expect_restart(life, "loaded");
}

/* ---- other manifests ---- */

/* A sealed copy in the place of the manifest, with one byte of it exchanged. */
static void forge_manifest(off_t offset, uint8_t value)
{
    struct fdstore_item *item = fake_supervisor_find(&supervisor, "m.");
    uint8_t bytes[65536];
    ssize_t n_bytes = pread(item->fd, bytes, sizeof(bytes), 0);
    assert_true(n_bytes > offset && n_bytes < (ssize_t)sizeof(bytes));
    bytes[offset] = value;
    int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, bytes, (size_t)n_bytes), n_bytes);
    assert_int_equal(
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
    (void)close(item->fd);
    item->fd = fd;
}

static void test_other_format(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    forge_manifest(8, 2);
    expect_restart(life, "loaded");
    assert_int_equal(fixture_logged(&life->fixture, "has format 2, this gemmd writes 1"), 1);
}

static void test_damaged_manifest(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    forge_manifest(100, 'X');
    expect_restart(life, "loaded");
    assert_int_equal(fixture_logged(&life->fixture, "its digest does not match"), 1);
}

/* ---- changes ---- */

/* The other model is served and kept, and nothing of the first one. */
static void expect_instead(struct life *life, struct test_model *other)
{
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_true(life_serves_through(client, other));
    gemmd_close(client);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
    test_model_finish(other);
}

/* Serves at once as it was, then as the checkpoint is now. */
static void test_changed_checkpoint(void **state)
{
    struct life *life = *state;
    struct test_model other;
    char source[600];
    char target[600];
    leave_weights(life);
    test_model_write(&other, &life->fixture.folder, "other", 12);
    (void)snprintf(source, sizeof(source), "%s/model.safetensors", other.path);
    (void)snprintf(target, sizeof(target), "%s/model.safetensors", life->model.path);
    assert_int_equal(rename(source, target), 0);
    start(life);
    fixture_wait_logged(&life->fixture, "reload: model 'tiny'", 1);
    expect_instead(life, &other);
}

static void test_configured_otherwise(void **state)
{
    struct life *life = *state;
    struct test_model other;
    char argument[600];
    leave_weights(life);
    test_model_write(&other, &life->fixture.folder, "other", 12);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", other.path);
    life->options.model = argument;
    start(life);
    expect_instead(life, &other);
}

/* A death between putting a new generation and dropping the old one: the later one counts. */
static void test_cut_short_reload(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    struct fdstore older = supervisor.store;
    supervisor.store = FDSTORE_NULL;
    for (uint32_t i = 0; i < older.n; i++) {
        int fd = fcntl(older.items[i].fd, F_DUPFD_CLOEXEC, 3);
        assert_int_equal(fdstore_put(&supervisor.store, older.items[i].name, fd), 0);
    }
    start(life);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_int_equal(control_job(client, MSG_VERB_RELOAD, "tiny", NULL, NULL), 0);
    gemmd_close(client);
    fixture_kill(&life->fixture);
    fake_supervisor_read(&supervisor);
    for (uint32_t i = 0; i < older.n; i++) {
        int fd = fcntl(older.items[i].fd, F_DUPFD_CLOEXEC, 3);
        assert_int_equal(fdstore_put(&supervisor.store, older.items[i].name, fd), 0);
    }
    fdstore_finish(&older);
    assert_int_equal(fake_supervisor_count(&supervisor, "m."), 2);
    assert_int_equal(fake_supervisor_count(&supervisor, "m.1"), 1);
    expect_restart(life, "adopted");
    assert_int_equal(fake_supervisor_count(&supervisor, "m.2"), 1);
}

/* ---- deaths in the middle of it ---- */

/* Processes that die of the first region that they import. */
static void die_adopting(struct life *life, uint32_t n_times)
{
    assert_int_equal(setenv("GEMMD_FAULT", "import:1", 1), 0);
    for (uint32_t i = 1; i <= n_times; i++) {
        fixture_spawn(&life->fixture, &life->options);
        assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), 256 + SIGKILL);
        fake_supervisor_read(&supervisor);
        assert_int_equal(fake_supervisor_count(&supervisor, "a."), i);
        assert_int_equal(supervisor.store.n, N_KEPT + i);
    }
}

/* Two deaths may have had another cause. */
static void test_two_deaths(void **state)
{
    struct life *life = *state;
    for (uint32_t i = 0; i < 2; i++) {
        leave_weights(life);
        die_adopting(life, 2);
        assert_int_equal(unsetenv("GEMMD_FAULT"), 0);
        start(life);
        expect_origin(life, "adopted");
        fixture_kill(&life->fixture);
        fake_supervisor_read(&supervisor);
        assert_int_equal(supervisor.store.n, N_KEPT);
    }
}

/* The fourth process lets go of them, and would die if it did not. */
static void test_deadly_weights(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    die_adopting(life, 3);
    expect_restart(life, "loaded");
    assert_int_equal(unsetenv("GEMMD_FAULT"), 0);
    assert_int_equal(fixture_logged(&life->fixture, "3 processes have died of adopting it"), 1);
    expect_restart(life, "adopted");
}

/* ---- draining ---- */

static void expect_state(struct life *life, const char *expected)
{
    json_t *document = status_document_read(&life->fixture);
    assert_string_equal(json_string_value(json_object_get(document, "state")), expected);
    json_decref(document);
}

/* What somebody has drained takes no work after a death, nor after another; a stop ends that. */
static void test_drained(void **state)
{
    struct life *life = *state;
    start(life);
    gemmd_client_t *client = fixture_open(&life->fixture, GEMMD_PATH_RING);
    assert_int_equal(control_verb(client, MSG_VERB_DRAIN, NULL), 0);
    assert_int_equal(control_verb(client, MSG_VERB_DRAIN, NULL), 0);
    gemmd_close(client);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_kill(&life->fixture);
        fake_supervisor_read(&supervisor);
        assert_int_equal(fake_supervisor_count(&supervisor, "d."), 1);
        start(life);
        expect_state(life, "draining");
        expect_origin(life, "adopted");
        assert_false(life_serves(life));
    }
    assert_int_equal(fixture_stop(&life->fixture), 0);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
    expect_restart(life, "adopted");
}

/* ---- starts that cannot work ---- */

/* It ends slowly, and with what asks for another start; without weights, at once and as it is. */
static void test_faulty_configuration(void **state)
{
    struct life *life = *state;
    static const char *const faults[] = {"threads = many\n", "models = missing=/nowhere\n"};
    static const int codes[] = {EXIT_USAGE, EXIT_REFUSED};
    for (uint32_t i = 0; i < 2; i++) {
        life->options.config = faults[i];
        fixture_spawn(&life->fixture, &life->options);
        assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), codes[i]);
        assert_int_equal(fixture_logged(&life->fixture, "the weights stay kept"), 0);
    }
    life->options.config = NULL;
    leave_weights(life);
    for (uint32_t i = 0; i < 2; i++) {
        double begin = fixture_now();
        life->options.config = faults[i];
        fixture_spawn(&life->fixture, &life->options);
        assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_FAILED);
        assert_true(fixture_now() - begin >= 2.0);
        assert_int_equal(fixture_logged(&life->fixture, "the weights stay kept"), i + 1);
    }
    fixture_spawn(&life->fixture, &life->options);
    fixture_wait_logged(&life->fixture, "the weights stay kept", 3);
    assert_int_equal(fixture_stop(&life->fixture), 0); /* also while it waits */
    life->options.config = NULL;
    expect_restart(life, "adopted");
}

static void test_faulty_command_line(void **state)
{
    struct life *life = *state;
    life->options.argument = "--no-such-option";
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_USAGE);
    life->options.argument = NULL;
    leave_weights(life);
    life->options.argument = "--no-such-option";
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_FAILED);
    assert_int_equal(fixture_logged(&life->fixture, "the weights stay kept"), 1);
    life->options.argument = NULL;
    expect_restart(life, "adopted");
}

#define DISABLED(name) "kernels_disabled = " name "_int4_gemm_group\n"

/* One line says it, and of the weights nothing is lost. */
static void test_no_kernel_left(void **state)
{
    struct life *life = *state;
    leave_weights(life);
    life->options.config = DISABLED("portable") DISABLED("avx2") DISABLED("avx512");
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), EXIT_FAILED);
    assert_int_equal(fixture_logged(&life->fixture,
                                    "kept weight 'tiny/layer.int4': each kernel that could is "
                                    "disabled in the configuration: "),
                     1);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
    life->options.config = NULL;
    expect_restart(life, "adopted");
}

/* ---- two of them ---- */

static void test_two_daemons(void **state)
{
    struct life *life = *state;
    struct fixture second;
    leave_weights(life);
    start(life);
    fake_supervisor_read(&supervisor);
    fixture_init(&second);
    fixture_spawn(&second, &life->options);
    assert_int_equal(fixture_wait_exit(&second, FIXTURE_STOP_SECONDS), EXIT_FAILED);
    assert_int_equal(fixture_logged(&second, "still serves the weights that were kept"), 1);
    fixture_finish(&second);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.store.n, N_KEPT);
    assert_true(life_serves(life));
}

/* ---- sockets and signs ---- */

/* Connections wait in the listening sockets, which the daemon neither makes nor removes. */
static void test_handed_sockets(void **state)
{
    struct life *life = *state;
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM, SOCK_STREAM};
    static const char *const names[] = {"session", "control", "status"};
    for (uint32_t i = 0; i < 3; i++) {
        int fd = unix_listen(life_socket_path(life, names[i]), types[i], 0600);
        assert_true(fd >= 0);
        assert_int_equal(fdstore_put(&supervisor.store, names[i], fd), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        start(life);
        assert_true(life_serves(life));
        assert_int_equal(fixture_stop(&life->fixture), 0);
        assert_true(life_has_sockets(life));
    }
    life->options.config = "models = missing=/nowhere\n";
    fixture_spawn(&life->fixture, &life->options);
    assert_int_not_equal(fixture_wait_exit(&life->fixture, FIXTURE_STOP_SECONDS), 0);
    assert_true(life_has_sockets(life)); /* nor does one that cannot start */
}

static void test_watchdog(void **state)
{
    struct life *life = *state;
    (void)snprintf(supervisor.watchdog_usec, sizeof(supervisor.watchdog_usec), "300000");
    start(life);
    fake_supervisor_await(&supervisor, &life->fixture, &supervisor.n_signs, 3);
    assert_int_equal(fixture_stop(&life->fixture), 0);
    fake_supervisor_read(&supervisor);
    assert_int_equal(supervisor.n_stopping, 1);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_adopted),
        CASE(test_loaded_by_hand),
        CASE(test_flipped_byte),
        CASE(test_missing_region),
        CASE(test_missing_manifest),
        CASE(test_other_format),
        CASE(test_damaged_manifest),
        CASE(test_changed_checkpoint),
        CASE(test_configured_otherwise),
        CASE(test_cut_short_reload),
        CASE(test_two_daemons),
        CASE(test_handed_sockets),
        CASE(test_watchdog),
        CASE(test_two_deaths),
        CASE(test_deadly_weights),
        CASE(test_drained),
        CASE(test_faulty_configuration),
        CASE(test_faulty_command_line),
        CASE(test_no_kernel_left),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
