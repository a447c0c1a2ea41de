/* verify.h - is what we serve what the checkpoint says, and do the kernels compute it? */
#pragma once

#include "daemon/weights/progress.h"
#include "daemon/weights/store.h"
#include "daemon/weights/warnings.h"

/* A product of so many summands may be off by this much, relative, in the Frobenius norm (f32
 * output): tensor cores cut off what falls below the last bit of a running sum, and where that is
 * one chain over all of k the cuts add up. */
#define VERIFY_TOLERANCE(k) (1e-5 + (k)*0x1p-29)

/* verify_model() - for each weight of a held model, or for the one called `weight_name` (NULL:
 * all): read it from the checkpoint again, unpack what is packed and compare bit for bit; then run
 * the selected kernels on a few pseudo-random rows and compare with the double precision reference.
 * The report says how many weights, the worst error and where.
 * Return: 0, STATUS_INTERNAL when a weight or a product is not right, STATUS_NOT_FOUND for a weight
 * that the model or its checkpoint does not have, as model_source_open() and module_read(), or
 * -ENOMEM. */
int verify_model(const struct model *model, const char *weight_name, struct progress *progress,
                 struct warnings *warnings, char ret_report[MSG_TEXT_BYTES],
                 struct reason *why) GD_MUST_CHECK;
