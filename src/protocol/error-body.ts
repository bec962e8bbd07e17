// The body of every failed request's answer.

import * as v from "valibot";
import { jws, received, listOf } from "./values.ts";

export const ErrorBody = v.object({
  error: received(1024),
  code: received(255),
  detail: received(65_536),
  /** What to do next. */
  hint: v.optional(received(65_536)),
  status_code: v.number(),
  errors: v.optional(v.pipe(v.record(received(4096), listOf(received(4096), 1000)), v.maxEntries(10_000))),
  /** With `second_factor_required` and `step_up_required`. */
  methods: v.optional(listOf(received(64), 16)),
  /** With `node_revoked`: the signed order that revoked the node. */
  order: v.optional(jws),
});
export type ErrorBody = v.InferOutput<typeof ErrorBody>;
