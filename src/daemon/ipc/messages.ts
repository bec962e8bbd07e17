// The words of the daemon's socket: newline-delimited JSON, one object a line (decisions 7). Clients load the types
// alone; the daemon checks requests with the schemas.

import * as v from "valibot";
import type { ErrorCode } from "../../errors.ts";
import { Slug } from "../../protocol.ts";

/** Longest line, without its line break. */
export const maxLineBytes = 64 * 1024;

/** Keys that are not known are passed over: a newer client may say more than this daemon understands. */
export const Request = v.object({
  action: v.pipe(v.string(), v.maxLength(64)),
  team: v.optional(Slug),
  /** For the log alone. */
  reason: v.optional(v.pipe(v.string(), v.maxLength(1024))),
  /** Unix seconds, for the log alone; a wrong clock is no reason to refuse. */
  request_ts: v.optional(v.unknown()),
  /** Comes back with the answer. */
  id: v.optional(v.union([v.pipe(v.string(), v.maxLength(128)), v.number()])),
  /** logs: how many of the last lines. */
  lines: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(10_000))),
  /** logs: send what comes, until the client leaves. */
  follow: v.optional(v.boolean()),
});
export type Request = v.InferOutput<typeof Request>;

/** A team as `status`, `list` and `status --json` show it. */
export type TeamStatus = {
  team: string;
  state: "running" | "starting" | "stopping" | "stopped" | "waiting" | "revoked";
  wanted: "up" | "down";
  mode: "desktop" | "server";
  pid?: number;
  name: string;
  ip_address: string;
  uptime_s?: number;
  certificate_not_after: string;
  last_checkin_at?: string;
  /** With how many the engine has a tunnel, where it tells. */
  peers?: number;
  /** Keys of the configuration that wait for the engine's next start. */
  restart_pending?: string[];
  /** Settings of the control plane that this machine does not take, and why. */
  left_out?: { key: string; reason: string }[];
  active?: true;
  /** Why it is not running, or what needs attention. */
  message?: string;
};

export type Answer = {
  ok: boolean;
  message: string;
  code?: ErrorCode;
  /** What to do next, on failure. */
  hint?: string;
  team?: string;
  pid?: number;
  id?: string | number;
  teams?: readonly string[] | readonly TeamStatus[];
  version?: string;
  lines?: readonly string[];
  /** sync: what became of the configuration, of this node's access, and of the engine. */
  result?: "changed" | "same" | "returned";
  access?: "ok" | "revoked" | "resumed";
  action?: "none" | "stopped" | "started";
  config_version?: number;
  left_out?: readonly { key: string; reason: string }[];
  reason?: string;
};

/** A line that a client gets without having asked for it, after `subscribe` or `logs` with `follow`. */
export type Notice =
  | { event: "team"; team: string; status: TeamStatus }
  | { event: "gone"; team: string }
  | { event: "log"; team: string; line: string };
