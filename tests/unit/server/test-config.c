/* test-config.c - the option table, the file parser, and the pages that have to agree with the
 * table. GEMMD_UPDATE=1 rewrites the pages instead of comparing them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/device/device.h"
#include "daemon/engine/sched.h"
#include "daemon/server/config.h"
#include "tests/harness/safetensors_writer.h"
#include "tests/unit/server/option_pages.h"

#define MAN_BEGIN ".\\\" options begin\n"
#define MAN_END   ".\\\" options end\n"

static int parse(struct config *config, const char *text, struct reason *why)
{
    *why = REASON_NULL;
    config_finish(config);
    assert_int_equal(config_init(config), 0);
    return config_parse(config, "f.conf", text, strlen(text), why);
}

static void test_defaults_pass_their_own_rules(void **state)
{
    (void)state;
    struct config config;
    struct reason why = REASON_NULL;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_check(&config, &why), 0);
    assert_int_equal(config.lane_entries, 256);
    assert_int_equal(config.socket_mode, 0600);
    assert_int_equal(config.batching, SCHED_RENDEZVOUS);
    assert_int_equal(config.buffer_bytes_max, 256u << 20);
    assert_string_equal(config.log, "info");
    assert_int_equal(config.models.n, 0);
    config_finish(&config);
}

static void test_file_is_read(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    int r = parse(&config,
                  "\xef\xbb\xbf# comment\n\n  rows_max=12\t\n batching = natural\nmodels = a=/x y\n"
                  "models = b=/z#1\r\nbuffer_bytes_max = 3M\nsocket_mode = 0660\n"
                  "log = worker:debug, info",
                  &why);
    assert_int_equal(r, 0);
    assert_int_equal(config.rows_max, 12);
    assert_int_equal(config.batching, SCHED_NATURAL);
    assert_int_equal(config.models.n, 2);
    assert_string_equal(config.models.items[0], "a=/x y");
    assert_string_equal(config.models.items[1], "b=/z#1");
    assert_int_equal(config.buffer_bytes_max, 3u << 20);
    assert_int_equal(config.socket_mode, 0660);
    assert_string_equal(config.log, "worker:debug, info");
    config_finish(&config);
}

static void test_faults_name_file_line_and_fault(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *sentence;
    } cases[] = {
        {"rows_max = 0", "f.conf:1: rows_max: '0' is not between 1 and 1048576"},
        {"\nrows_max = 1048577", "f.conf:2: rows_max: '1048577' is not between 1 and 1048576"},
        {"rows_max = 12x", "f.conf:1: rows_max: '12x' is not a number between 1 and 1048576"},
        {"rows_max = -1", "f.conf:1: rows_max: '-1' is not a number"},
        {"rows_max =", "f.conf:1: rows_max: '' is not a number"},
        {"rows_max = 99999999999999999999", "f.conf:1: rows_max: '99999999999999999999' is"},
        {"buffer_bytes_max = 18446744073709551615K", "f.conf:1: buffer_bytes_max: '184467"},
        {"buffer_bytes_max = 1Q", "f.conf:1: buffer_bytes_max: '1Q' is not a size (bytes, or with "
                                  "K, M, G or T) between 4096"},
        {"socket_mode = 0777", "f.conf:1: socket_mode: '0777' is not between 0600 and 0660"},
        {"socket_mode = 0800",
         "f.conf:1: socket_mode: '0800' is not an octal number between 0600 and 0660"},
        {"batching = maybe", "f.conf:1: batching: 'maybe' is not one of off|natural|rendezvous"},
        {"socket_dir = run", "f.conf:1: socket_dir: run is not an absolute path"},
        {"socket_dir = \"/run\"", "f.conf:1: socket_dir: \"/run\" is in quotes, which would"},
        {"tuning_file = t", "f.conf:1: tuning_file: t is not an absolute path"},
        {"launch_ahead = maybe", "f.conf:1: launch_ahead: 'maybe' is not one of no|yes"},
        {"batching = no", "f.conf:1: batching: 'no' is not one of off|natural|rendezvous"},
        {"nonsense = 1", "f.conf:1: there is no option 'nonsense'"},
        {"rows_max", "f.conf:1: 'rows_max' is not KEY = VALUE"},
        {"rows_max = 1\n#\nrows_max = 2", "f.conf:3: rows_max was set in line 1 already"},
        {"models =", "f.conf:1: models: an item is empty"},
        {"devices = cuda:x", "f.conf:1: devices: 'cuda:x' is none of auto, host, cuda:N, GPU-UUID"},
        {"devices = cuda:", "f.conf:1: devices: 'cuda:' is none of"},
        {"devices = host\ndevices = GPU-12g", "f.conf:2: devices: 'GPU-12g' is none of"},
        {"devices = cpu", "f.conf:1: devices: 'cpu' is none of"},
        {"lane_entries = 100", "f.conf:1: lane_entries: 100 is not a power of two"},
        {"#\nhost_isa = sse9", "f.conf:2: host_isa: "},
        {"socket_mode = 0620", "f.conf:1: socket_mode: 0620 is neither 0600 nor 0660"},
        {"models = nameless", "f.conf:1: models: 'nameless' is not NAME=PATH"},
        {"models = =/x", "f.conf:1: models: a name of 0 bytes in '=/x'"},
        {"models = a=", "f.conf:1: models: 'a=' is not NAME=PATH"},
        {"\nmodels = a/b=/x", "f.conf:2: models: the model's name 'a/b' contains a '/'"},
        {"models = a=/x\nmodel_options = a: nonsense=1", "f.conf:2: model_options: "},
        {"models = a=/x\nmodel_options = a: tp_rank=0",
         "f.conf:2: model_options: 'a: tp_rank=0' has a tp_rank without a tp_size"},
        {"admin_uids = 0\nadmin_uids = bob", "f.conf:2: admin_uids: 'bob' is no user id"},
        {"admin_uids = 4294967295", "f.conf:1: admin_uids: '4294967295' is no user id"},
        {"kernels_disabled = avx9", "f.conf:1: kernels_disabled: this build has no kernel 'avx9'"},
        {"kernels_preferred = x", "f.conf:1: kernels_preferred: this build has no kernel 'x'"},
        {"tuning = maybe", "f.conf:1: tuning: 'maybe' is not one of no|yes|auto"},
        {"log = loud", "f.conf:1: log: 'loud' is none of error, warning, notice, info, debug"},
        {"status_port = 65536", "f.conf:1: status_port: '65536' is not between 0 and 65535"},
    };
    struct config config = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reason why;
        assert_int_equal(parse(&config, cases[i].text, &why), STATUS_INVALID_ARGUMENT);
        if (strncmp(why.text, cases[i].sentence, strlen(cases[i].sentence)) != 0) {
            fail_msg("'%s' should say '%s' and says '%s'", cases[i].text, cases[i].sentence,
                     why.text);
        }
    }
    config_finish(&config);
}

static void test_the_likest_option_is_named(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    assert_int_equal(parse(&config, "device = host", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "there is no option 'device'; there are "));
    assert_non_null(strstr(why.text, ", like devices, "));
    assert_int_equal(parse(&config, "model = a=/x", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, ", like models, "));
    config_finish(&config);
}

static void test_words_for_yes_and_no(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        uint64_t value;
    } cases[] = {{"yes", 1}, {"true", 1}, {"on", 1}, {"no", 0}, {"false", 0}, {"off", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct config config;
        struct reason why = REASON_NULL;
        assert_int_equal(config_init(&config), 0);
        assert_int_equal(config.launch_ahead, 1);
        assert_int_equal(config.tuning, CONFIG_TUNING_AUTO);
        assert_int_equal(config_set(&config, "launch_ahead", cases[i].word, &why), 0);
        assert_int_equal(config_set(&config, "tuning", cases[i].word, &why), 0);
        assert_int_equal(config.launch_ahead, cases[i].value);
        assert_int_equal(config.tuning, cases[i].value ? CONFIG_TUNING_YES : CONFIG_TUNING_NO);
        config_finish(&config);
    }
}

static void test_zero_bytes_and_long_values_are_refused(void **state)
{
    (void)state;
    struct config config;
    struct reason why = REASON_NULL;
    char text[CONFIG_TEXT_BYTES + 32] = "tuning_file = /";
    size_t n_key_bytes = strlen(text);
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_parse(&config, "f", "rows_max\0= 1", 12, &why),
                     STATUS_INVALID_ARGUMENT);
    n_key_bytes--; /* the slash is of the value */
    memset(text + n_key_bytes + 1, 'a', CONFIG_TEXT_BYTES - 1);
    assert_int_equal(config_parse(&config, "f", text, strlen(text), &why), STATUS_INVALID_ARGUMENT);
    text[n_key_bytes + CONFIG_TEXT_BYTES - 1] = '\0';
    assert_int_equal(config_parse(&config, "f", text, strlen(text), &why), 0);
    config_finish(&config);
}

static void test_rules_between_options(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    assert_int_equal(
        parse(&config, "models = a=/x\n\nmodel_options = a: tp_rank=0 tp_size=2", &why), 0);
    assert_int_equal(config_check(&config, &why), 0);
    assert_int_equal(parse(&config, "models = a=/x\n\nmodel_options = b: fuse=usual", &why), 0);
    assert_int_equal(config_check(&config, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "f.conf:3: model_options: models has no 'b'");
    assert_int_equal(config_set(&config, "models", "b=/y", &why), 0);
    assert_int_equal(config_check(&config, &why), 0);
    assert_int_equal(config_set(&config, "model_options", "c: fuse=usual", &why), 0);
    assert_int_equal(config_check(&config, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "model_options: models has no 'c'"); /* not of the file */
    config_finish(&config);
}

static void test_nothing_is_there_twice(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    assert_int_equal(parse(&config, "models = a=/x\nmodels = ab=/x\ndevices = host", &why), 0);
    assert_int_equal(config_check(&config, &why), 0);
    assert_int_equal(parse(&config, "models = a=/x\n\nmodels = a=/y", &why), 0);
    assert_int_equal(config_check(&config, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "f.conf:3: models: 'a' is there twice");
    assert_int_equal(parse(&config, "devices = host\ndevices = host", &why), 0);
    assert_int_equal(config_check(&config, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "f.conf:2: devices: 'host' is there twice");
    assert_int_equal(parse(&config, "models = a=/x", &why), 0);
    assert_int_equal(config_set(&config, "models", "a=/x", &why), 0);
    assert_int_equal(config_check(&config, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "models: 'a' is there twice"); /* not of the file */
    config_finish(&config);
}

static void test_folder_without_a_checkpoint(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    assert_int_equal(parse(&config, "models = a=/nowhere\nmodels = b=/proc/self/fdinfo", &why), 0);
    assert_int_equal(config_check(&config, &why), 0); /* it may be there at the start */
    assert_int_equal(config_check_checkpoint(&config, 0, &why), STATUS_NOT_FOUND);
    assert_non_null(strstr(why.text, "f.conf:1: models: 'a=/nowhere': cannot open '/nowhere'"));
    assert_int_equal(config_check_checkpoint(&config, 1, &why), STATUS_BAD_CHECKPOINT);
    assert_string_equal(why.text, "f.conf:2: models: 'b=/proc/self/fdinfo': there is no "
                                  ".safetensors file in '/proc/self/fdinfo'");
    config_finish(&config);
}

static void expect_warning(const struct config *config, uint32_t i_model, const char *sentence)
{
    struct reason why = REASON_NULL;
    assert_true(config_check_checkpoint(config, i_model, &why) > 0);
    if (strstr(why.text, sentence) == NULL) {
        fail_msg("'%s' does not say '%s'", why.text, sentence);
    }
}

/* What headers and settings alone show: the load would say the same. */
static void test_damaged_checkpoint(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    struct temp_folder folder;
    char text[1024];
    temp_folder_init(&folder);
    write_safetensors(temp_path(&folder, "model.safetensors"),
                      "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[0,256]}}",
                      256);
    (void)snprintf(text, sizeof(text),
                   "models = a=%s\nmodels = b=%s\nmodel_options = b: fuse=q=x,y", folder.path,
                   folder.path);
    assert_int_equal(parse(&config, text, &why), 0);
    assert_int_equal(config_check_checkpoint(&config, 0, &why), 0);
    expect_warning(&config, 1, "f.conf:2: models: 'b=");
    write_text(temp_path(&folder, "config.json"), "{");
    expect_warning(&config, 0, "config.json is not valid JSON");
    config_finish(&config);
    temp_folder_finish(&folder);
}

static void test_gpus_need_their_back_end(void **state)
{
    (void)state;
    struct config config = {0};
    struct reason why;
    int wanted = device_cuda_is_built() ? 0 : STATUS_INVALID_ARGUMENT;
    assert_int_equal(parse(&config, "devices = auto\ndevices = cuda:0", &why), wanted);
    if (wanted != 0) {
        assert_string_equal(why.text, "f.conf:2: devices: this build has no CUDA back end, which "
                                      "'cuda:0' needs");
    }
    assert_int_equal(parse(&config, "devices = GPU-12", &why), wanted);
    config_finish(&config);
}

static void test_lists_are_bounded_and_cleared(void **state)
{
    (void)state;
    struct config config;
    struct reason why = REASON_NULL;
    assert_int_equal(config_init(&config), 0);
    for (uint32_t i = 0; i < CONFIG_DEVICES_MAX; i++) {
        assert_int_equal(config_set(&config, "devices", "host", &why), 0);
    }
    assert_int_equal(config_set(&config, "devices", "host", &why), STATUS_INVALID_ARGUMENT);
    config_clear(&config, "devices");
    assert_int_equal(config.devices.n, 0);
    config_finish(&config);
}

static void test_administrators(void **state)
{
    (void)state;
    struct config config;
    assert_int_equal(config_init(&config), 0);
    assert_true(config_is_admin(&config, 0));
    assert_true(config_is_admin(&config, geteuid()));
    assert_false(config_is_admin(&config, 54321));
    assert_int_equal(config_set(&config, "admin_uids", "54321", NULL), 0);
    assert_true(config_is_admin(&config, 54321));
    uid_t uids[CONFIG_ADMINS_MAX + 2];
    assert_int_equal(config_admin_uids(&config, uids), 3);
    assert_int_equal(uids[2], 54321);
    config_finish(&config);
}

static void test_unreadable_files_are_named(void **state)
{
    (void)state;
    struct config config;
    struct reason why = REASON_NULL;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_load(&config, "/nonexistent/g.conf", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "/nonexistent/g.conf: No such file"));
    assert_int_equal(config_load(&config, "/dev/zero", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(config_load(&config, "", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "a file without a name: No such file or directory");
    config_finish(&config);
}

/* ---- pages ---- */

static char *page_path(const char *relative)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", getenv("GEMMD_SOURCE_DIR"), relative) > 0);
    return path;
}

/* "" for a file that is not there: it differs from every page. */
static char *read_file(const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return strdup("");
    }
    ssize_t n = getdelim(&text, &n_bytes, '\0', file);
    (void)fclose(file);
    assert_true(n > 0);
    return text;
}

static void check_page(const char *path, const char *wanted)
{
    if (getenv("GEMMD_UPDATE") != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(wanted, file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    char *found = read_file(path);
    if (strcmp(found, wanted) != 0) {
        fail_msg("%s differs from the option table; GEMMD_UPDATE=1 rewrites it", path);
    }
    free(found);
}

static void test_gemmd_conf_is_the_table(void **state)
{
    (void)state;
    char *path = page_path("deploy/gemmd.conf");
    char *wanted = option_pages_conf();
    check_page(path, wanted);
    free(wanted);
    free(path);
}

static void test_gemmd_conf_parses_with_every_option_on(void **state)
{
    (void)state;
    char *text = option_pages_conf();
    uint32_t n_on = 0;
    for (char *at = strstr(text, "\n#"); at != NULL; at = strstr(at + 1, "\n#")) {
        char *equals = strstr(at, " =");
        bool is_option = at[2] != ' ' && equals != NULL;
        if (is_option && equals[2] != '\n') { /* an empty list item is no item */
            at[1] = ' ';
            n_on++;
        }
    }
    struct config config;
    struct reason why = REASON_NULL;
    assert_int_equal(config_init(&config), 0);
    if (config_parse(&config, "gemmd.conf", text, strlen(text), &why) != 0) {
        fail_msg("%s", why.text);
    }
    assert_true(n_on > 15);
    assert_int_equal(config_check(&config, &why), 0);
    config_finish(&config);
    free(text);
}

static void test_man_page_has_the_table(void **state)
{
    (void)state;
    char *path = page_path("daemon/man/gemmd.conf.5");
    char *page = read_file(path);
    char *begin = strstr(page, MAN_BEGIN);
    char *end = strstr(page, MAN_END);
    assert_non_null(begin);
    assert_non_null(end);
    char *table = option_pages_man();
    char *wanted = NULL;
    int head_bytes = (int)(begin - page) + (int)strlen(MAN_BEGIN);
    assert_true(asprintf(&wanted, "%.*s%s%s", head_bytes, page, table, end) > 0);
    check_page(path, wanted);
    free(wanted);
    free(table);
    free(page);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_pass_their_own_rules),
        cmocka_unit_test(test_file_is_read),
        cmocka_unit_test(test_faults_name_file_line_and_fault),
        cmocka_unit_test(test_the_likest_option_is_named),
        cmocka_unit_test(test_words_for_yes_and_no),
        cmocka_unit_test(test_zero_bytes_and_long_values_are_refused),
        cmocka_unit_test(test_rules_between_options),
        cmocka_unit_test(test_nothing_is_there_twice),
        cmocka_unit_test(test_folder_without_a_checkpoint),
        cmocka_unit_test(test_damaged_checkpoint),
        cmocka_unit_test(test_gpus_need_their_back_end),
        cmocka_unit_test(test_lists_are_bounded_and_cleared),
        cmocka_unit_test(test_administrators),
        cmocka_unit_test(test_unreadable_files_are_named),
        cmocka_unit_test(test_gemmd_conf_is_the_table),
        cmocka_unit_test(test_gemmd_conf_parses_with_every_option_on),
        cmocka_unit_test(test_man_page_has_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
