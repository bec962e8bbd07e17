// The protocol of the daemon's socket: newline-delimited JSON, one object a line. In it an organization is a "team". Clients
// load only the types; the daemon checks requests with the schemas.

import type { MappingShown } from "../../node/files/mapping-state.ts";
import type { FlowsShown } from "../../node/files/flows-state.ts";
import type { SealSeen } from "../../engine/seal-seen.ts";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import type { ErrorCode } from "../../base/errors.ts";
import type { Confirmation } from "../../protocol/confirmation.ts";
import type { Finding } from "../../node/health/findings.ts";
import type { ShownDataPlane } from "../../node/files/config/data-plane-in-force.ts";
import type { Health } from "../../node/health/verdict.ts";
import type { PeerReport } from "../../node/health/shown-peer.ts";
import type { RelayedAnswer } from "../../protocol/traffic-reports.ts";
import { Slug } from "../../protocol/values.ts";

/** Longest line without its line break. */
export const maxLineBytes = 64 * 1024;

/** Ignores unknown keys: a newer client may send more than this daemon understands. */
export const Request = v.object({
  action: boundedText(64),
  team: v.optional(Slug),
  /** Only for the log. */
  reason: v.optional(boundedText(1024)),
  /** Unix seconds, not checked: a wrong clock is no reason to refuse. */
  request_ts: v.optional(v.unknown()),
  /** Returned with the answer. */
  id: v.optional(v.union([boundedText(128), v.number()])),
  /** status: probe now, and answer with the result; peers: for a peer, its name or address. */
  probe: v.optional(v.boolean()),
  peer: v.optional(boundedText(253)),
  /** prove: the family of a session's tokens, and the address of its control plane. */
  session: v.optional(boundedText(128)),
  control_plane: v.optional(boundedText(2048)),
  /** exit: which one the packets of the machine take; "off": none. */
  exit: v.optional(v.object({ use: boundedText(255), strict: v.boolean(), lan: v.boolean() })),
  /** logs: the number of last lines. */
  lines: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(10_000))),
  /** logs: send new lines until the client disconnects. */
  follow: v.optional(v.boolean()),
});
export type Request = v.InferOutput<typeof Request>;

/** An organization as `status`, `list` and `status --json` show it. */
export type OrganizationState = {
  team: string;
  /** starting: the engine runs, but is not ready yet. waiting: it failed, and is started again after a pause. */
  state: "running" | "starting" | "stopping" | "stopped" | "waiting" | "revoked";
  wanted: "up" | "down";
  mode: "desktop" | "server";
  pid?: number;
  name: string;
  ip_address: string;
  uptime_s?: number;
  certificate_not_after: string;
  last_checkin_at?: string;
  /** The number of tunnels, if the engine reports it. */
  peers?: number;
  /** Keys of the configuration that apply only after a restart of the engine. */
  restart_pending?: string[];
  /** Settings of the control plane that this machine does not accept, with reasons. */
  left_out?: { key: string; reason: string }[];
  /** Set if the organization wants reports of flows: whether this machine sends them. Older daemons do not send it. */
  flows?: FlowsShown;
  /** The seal of the organization that this node holds, and what it would refuse. */
  seal?: SealSeen;
  /** Offloads and buffers of the engine. Older daemons do not send them. */
  data_plane?: ShownDataPlane;
  /** It is the one that `switch` chose. */
  active?: true;
  /** The node ends when it stops; its certificate lives for an hour. */
  ephemeral?: true;
  /** Whether traffic passes; unset while no engine runs, before the first look, and where nothing watches it. */
  health?: Health;
  /** All findings, the gravest first. Only `status` itself adds them, not the daemon. */
  findings?: Finding[];
  /** Bytes that this relay forwarded this month, as the control plane counts them, and the monthly limit. */
  relayed?: RelayedAnswer;
  /** The node is revoked at `until`, unless its user confirms on the page `url` that it is still theirs. */
  confirm?: Confirmation;
  /** Set while UDP is blocked: the node goes by TCP, through this host and port, since this time (RFC 3339). */
  tcp?: { at: string; since: string };
  /** The port of the router that is mapped to the engine. Older daemons do not send it. */
  port_mapping?: MappingShown;
  /** Why the engine does not run, or what needs attention. */
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
  teams?: readonly string[] | readonly OrganizationState[];
  version?: string;
  /** status, list, version: the directory of the organizations that the daemon runs. */
  config_root?: string;
  lines?: readonly string[];
  /** peers */
  peers?: readonly PeerReport[];
  /** peers: whether the engine reports its tunnels, and its version. */
  reports_tunnels?: boolean;
  engine_version?: string;
  /** sync: what happened to the configuration (`result`), to this node's access, and to the engine (`action`). */
  result?: "changed" | "same" | "returned";
  access?: "ok" | "revoked" | "resumed";
  action?: "none" | "stopped" | "started";
  config_version?: number;
  left_out?: readonly { key: string; reason: string }[];
  /** sync: files that were missing, and are there again. Older daemons do not tell. */
  restored?: readonly string[];
  reason?: string;
  /** prove: of the nodes of this machine at that control plane. */
  proofs?: readonly { organization: string; node_id: number; proof: string }[];
};

/** A line without a request, after `subscribe` or `logs` with `follow`. */
export type Notice =
  | { event: "team"; team: string; status: OrganizationState }
  | { event: "gone"; team: string }
  | { event: "log"; team: string; line: string };
