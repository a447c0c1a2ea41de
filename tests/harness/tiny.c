/* tiny.c - see tiny.h. */
#include "tests/harness/tiny.h"

#include <stdio.h>

int tiny_start(struct fixture *fixture, struct test_model *model, uint64_t seed, const char *config)
{
    char argument[512];
    fixture_init(fixture);
    test_model_write(model, &fixture->folder, "tiny", seed);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model->path);
    const struct fixture_options options = {.model = argument, .config = config};
    fixture_start(fixture, &options);
    return 0;
}

int tiny_stop(struct fixture *fixture, struct test_model *model)
{
    int code = fixture_stop(fixture);
    fixture_finish(fixture);
    test_model_finish(model);
    return code;
}

int bare_start(struct fixture *fixture, gemmd_client_t **ret_client)
{
    fixture_init(fixture);
    fixture_start(fixture, &(struct fixture_options){.model = NULL});
    *ret_client = fixture_open(fixture, GEMMD_PATH_RING);
    return 0;
}

int bare_stop(struct fixture *fixture, gemmd_client_t *client)
{
    gemmd_close(client);
    int code = fixture_stop(fixture);
    fixture_finish(fixture);
    return code;
}
