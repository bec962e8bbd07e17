// What the daemon stores of an organization.

import * as v from "valibot";
import { boundedText } from "../base/text.ts";
import { ConfirmationAnswer } from "../protocol/confirmation.ts";

const text = boundedText(255);

/** The keys are stored, and earlier versions wrote them: they must not change. */
export const OrganizationRecord = v.object({
  /** The state that a user wants. Revocation and restore never change it. */
  wanted: v.picklist(["up", "down"]),
  /** The organization is not loaded again until a client names it or requests `provision`. */
  forgotten: v.optional(v.boolean(), false),
  /** The registration that this record is about. Unset in records of version 0.1.0. */
  registration: v.optional(text),
  /** The engine's process: the next daemon adopts it. */
  process: v.optional(v.object({ pid: v.number(), started: text, startedAt: v.number() })),
  lastCheckinAt: v.optional(text),
  /** The deadline for the user's confirmation, from the last check-in. */
  confirm: v.optional(ConfirmationAnswer),
  /** Keys of the configuration that apply only after a restart of this process. */
  restartPending: v.optional(v.pipe(v.array(text), v.maxLength(1000))),
});
export type OrganizationRecord = v.InferOutput<typeof OrganizationRecord>;
