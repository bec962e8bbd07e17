// peers.json of an organization: the peers whose underlay addresses this node keeps (kept-peers.ts). Times are ms since 1970.

import { join } from "node:path";
import * as v from "valibot";
import { writeFileAtomic } from "../../../base/files.ts";
import { makeSocketDirectory, socketDirectory } from "../../../platform/systemd/control-socket.ts";
import { maxKeptPeers, maxRemotes } from "../../../protocol/path-report.ts";
import { readValidJson } from "../../files/json-file.ts";

const text = v.pipe(v.string(), v.maxLength(64));
const count = v.pipe(v.number(), v.minValue(0));
const KeptPeer = v.object({
  /** Its overlay address. */
  peer: text,
  /** The underlay address and port at which a tunnel worked last. `from`: if it is private, this machine's own address then. */
  worked: v.exactOptional(v.object({ remote: text, at: count, from: v.exactOptional(text) })),
  /** Underlay addresses and ports that the control plane sent. */
  told: v.pipe(v.array(text), v.maxLength(maxRemotes)),
  /** In how many hours a tunnel worked. */
  uses: count,
});
export type KeptPeer = v.InferOutput<typeof KeptPeer>;

const KeptState = v.object({
  /** The position of the control plane's last answer, for the next request. */
  since: count,
  /** When the control plane was asked last, ms since 1970. */
  asked_at: count,
  /** When it last sent all addresses that it knows, not only changes. */
  whole_at: count,
  /** When the engine's log was read last. */
  log_at: count,
  /** ms between requests to the control plane. */
  every: count,
  peers: v.pipe(v.array(KeptPeer), v.maxLength(maxKeptPeers)),
});
export type KeptState = v.InferOutput<typeof KeptState>;

/** In the directory of the control socket, which only root may enter. */
const pathIn = (directory: string) => join(directory, socketDirectory, "peers.json");

/** Undefined if there is no file, or if it is damaged. */
export const readKeptState = (directory: string): KeptState | undefined =>
  readValidJson(pathIn(directory), KeptState);

/** `json`: a KeptState. For root alone: it shows whom this node knows, and from where. */
export function writeKeptState(directory: string, json: string): void {
  makeSocketDirectory(directory);
  writeFileAtomic(pathIn(directory), `${json}\n`, 0o600);
}
