// Values that the schemas of several endpoints share. `Text` and `Time` are for answers; texts of requests are `foreignText`
// (src/base/text.ts), with a maximum of their own.

import * as v from "valibot";
import { parseDuration, parseMoment } from "../base/quantities.ts";
import type { ErrorCode } from "../base/errors.ts";
import { comparedText, emailKey, foreignText, formerEmailKey } from "../base/text.ts";
import type { Settings } from "../protocol/settings.ts";
import { oneLine } from "../base/unprintable.ts";

// Limits and durations

/** A node is online if it is active, and holds a poll or has checked in within this time. */
export const onlineMs = 150_000;
/**
 * The life of a node's overlay certificate. It is renewed when a third of it is left, and the CA is replaced when less than twice
 * this time is left of the CA.
 */
export const nodeLifetimeMs = 90 * 86_400_000;
/** Backups are daily: an older one raises an alarm, here as well as in the console and in docs/prometheus-alerts.yml. */
export const oldBackupDays = 2;
/** The UDP port of an engine, unless a setting says another. */
export const defaultOverlayPort = 4242;

/** For `before` in queries: an id above every other, because the API takes at most 15 digits. */
export const behindAll = 999_999_999_999_999;
/** The longest page of a list. */
export const maxPageSize = 1000;
/** Of an e-mail address, in characters. */
export const maxEmailLength = 254;
/** The code of an authenticator app, or a recovery code. */
export const maxCodeLength = 64;

/** The sentences by which callers recognize what is missing when the code is `not_found`. */
export const notFound = {
  organization: "There is no such organization.",
  /** No endpoint has the path: the control plane may be older than the caller. */
  path: "There is no such resource.",
} as const;

// Answers

/** A check, not `maxLength`: the OpenAPI document would promise that maximum to all callers. */
const atMost = (max: number) =>
  v.pipe(
    v.string(),
    v.check((text) => text.length <= max),
  );
/** A text in an answer, of at most 2 MiB. Readers bound the size of the whole answer as well. */
export const Text = atMost(2_097_152);
/** ISO 8601, UTC, with milliseconds. */
export const Time = atMost(64);

/** A URL that a command line prints, so without characters that a terminal would interpret. */
export const PrintedUrl = v.pipe(
  v.string(),
  v.check((text) => text.length <= 2048 && /^https?:\/\/[\x21-\x7e]+$/.test(text)),
);
/** How long a command line waits, in seconds. */
export const waitS = (max: number) =>
  v.pipe(
    v.number(),
    v.check((value) => value >= 1 && value <= max),
  );

// The next three schemas have two types. Readers of an answer take the input type, because a control plane of another version
// may have sent it. Handlers take the output type, because this version sends all that it declares.

/** A field of an answer that control planes send since this version. Readers: `undefined`, if theirs is older. */
export const since = <const S extends v.GenericSchema>(version: string, schema: S) =>
  ({ ...v.optional(schema), since: version }) as unknown as v.OptionalSchema<S, v.InferOutput<S>>;

/** A part of an answer: this version sends `sent`. Readers take the wider `read`, because a newer control plane may send more kinds. */
export const open = <const R extends v.GenericSchema, const S extends v.GenericSchema>(read: R, sent: S) =>
  ({ ...read, sent }) as unknown as v.GenericSchema<v.InferInput<R>, v.InferOutput<S>>;

/** One of these words in an answer. Readers take any text. */
export const word = <const W extends readonly string[]>(words: W) => open(v.string(), v.picklist(words));

/** Headers of answers with the files of a node. */
export const filesHeaders = {
  ETag: "Identifies these files",
  "X-Config-Version": "The configuration version of these files",
};
export const notModified = {
  description: "Nothing changed for this node: If-None-Match matches",
  headers: { "X-Config-Version": "The current configuration version; the files are the same" },
};

/** Errors of a change that policy as code may forbid. */
export const policyErrors: readonly ErrorCode[] = ["policy_by_file", "policy_unconfirmed"];
/** Errors of a change that also runs the tests of the policy. */
export const reachErrors: readonly ErrorCode[] = [...policyErrors, "policy_test_failed", "busy"];

// Requests

/** One of these words in a request whose caller has a text that a user typed: the control plane refuses other texts. */
export const typed = <const W extends readonly string[]>(words: W) =>
  v.picklist(words) as unknown as v.GenericSchema<string, W[number]>;

/** What a request for a new thing takes of its settings: each has its initial value. */
export const initially = <S extends Settings>(settings: S) =>
  Object.fromEntries(
    Object.entries(settings).map(([field, { takes, initial }]) => [field, v.optional(takes, initial)]),
  ) as { [K in keyof S]: v.OptionalSchema<S[K]["takes"], v.InferInput<S[K]["takes"]>> };

/** A whole number of a query, such as an id. */
export const whole = (min: number, max: number) =>
  v.pipe(
    foreignText(15),
    v.regex(/^\d{1,15}$/, "A whole number is required."),
    v.transform(Number),
    v.minValue(min, `At least ${min}.`),
    v.maxValue(max, `At most ${max}.`),
  );

/** A time of a query, ISO 8601 with its zone. The output is in ms. */
export const Moment = v.pipe(
  foreignText(40),
  v.isoTimestamp("A time such as 2026-11-27T14:00:00Z is required."),
  v.transform((text) => parseMoment(text) ?? Number.NaN),
  v.integer("A time such as 2026-11-27T14:00:00Z is required."),
);

/** A switch of a query; off by default. */
export const Switch = v.optional(v.picklist(["true", "false"]), "false");

/** Ids in a query, separated by commas: at most `most`, in a text of at most `maxLength` characters. */
export const idsOf = ({ most, maxLength }: { most: number; maxLength: number }) =>
  v.pipe(
    foreignText(maxLength),
    v.regex(
      new RegExp(`^[1-9]\\d{0,14}(,[1-9]\\d{0,14}){0,${most - 1}}$`),
      `At most ${most} ids, separated by commas.`,
    ),
    v.transform((text) => text.split(",").map(Number)),
  );

export const ListQuery = v.strictObject({
  page: v.optional(whole(1, 1_000_000), "1"),
  page_size: v.optional(whole(1, maxPageSize), "100"),
  search: v.optional(comparedText(100), ""),
});
export type ListQuery = v.InferOutput<typeof ListQuery>;

/** A duration such as 24h, at most 366 days. The output is in seconds. */
export const ExpiresIn = v.pipe(
  foreignText(32),
  v.check((text) => parseDuration(text) !== undefined, "Enter a duration such as 90s, 15m, 24h or 7d."),
  v.transform((text) => parseDuration(text) ?? 0),
  v.minValue(1, "At least 1s."),
  v.maxValue(366 * 86_400, "At most 366d."),
);

const enterEmail = "Enter a valid email address.";
/** Stored in lower case: two users never differ only by case. */
export const Email = v.pipe(
  foreignText(maxEmailLength),
  // Trimmed, and in lower case.
  v.transform(formerEmailKey),
  // Before emailKey, which reads the domain as the host of a URL. No dash at the beginning: a command would read the
  // address as a flag. No control or invisible characters: two addresses that look alike would be mistaken for each other.
  v.regex(
    /^(?!-)[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+@[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+$/u,
    enterEmail,
  ),
  v.transform(emailKey),
  // After emailKey: a domain in ASCII, without a final dot.
  v.regex(/@[!-~]*[!-\-/-~]$/, enterEmail),
  v.maxLength(maxEmailLength, enterEmail),
);

/** What a machine calls itself. Shown to the user who decides: no character may change how the line is read. */
export const MachineDescription = v.pipe(foreignText(200), v.transform(oneLine), v.trim(), v.minLength(1));

/**
 * These prefixes name users and groups of sign-in providers. Not a part of GroupName: groups of earlier versions that have
 * one keep working.
 */
export const isReservedGroup = (name: string) => /^(user|idp|autogroup):/i.test(name);
