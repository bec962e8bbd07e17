// The commands of the engine's control API (from engine 1.12 on). Peers choose some of the text in the answers, so schemas
// limit every field.

import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import { clean } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { exchange, isAbsent, type Answer } from "./control-exchange.ts";

// Answers are parsed with tolerance: fields of newer engines are ignored, and lists may be null.

const address = boundedText(64);
const list = <T extends v.GenericSchema>(item: T, max: number) =>
  v.pipe(
    v.nullish(v.array(item), []),
    v.maxLength(max),
    v.transform((items) => items ?? []),
  );
const count = v.pipe(v.number(), v.minValue(0));

const Certificate = v.object({
  details: v.object({
    name: boundedText(1024),
    groups: list(boundedText(1024), 10_000),
    networks: list(address, 1000),
    unsafeNetworks: list(address, 10_000),
    notBefore: boundedText(64),
    notAfter: boundedText(64),
    issuer: boundedText(128),
  }),
  fingerprint: boundedText(128),
});

const Tunnel = v.object({
  /** The peer's overlay addresses. */
  vpnAddrs: v.pipe(v.array(address), v.minLength(1), v.maxLength(100)),
  /** Changes with each handshake. */
  localIndex: count,
  remoteIndex: count,
  remoteAddrs: list(address, 1000),
  /** Undefined during a handshake. */
  cert: v.optional(v.nullable(Certificate)),
  /** Packets sent through this tunnel, also those that never arrive. */
  messageCounter: count,
  /** host:port; empty while the tunnel is relayed. */
  currentRemote: address,
  /** Overlay addresses of relays. They stay here after the tunnel became direct. */
  currentRelaysToMe: list(address, 1000),
  currentRelaysThroughMe: list(address, 10_000),
});
export type Tunnel = v.InferOutput<typeof Tunnel>;

const Tunnels = list(v.unknown(), 100_000);

const Relays = v.object({
  Relays: list(
    v.object({
      NebulaAddr: address,
      RelayForAddrs: list(
        v.object({
          Error: v.optional(boundedText(1024)),
          Type: boundedText(32),
          State: boundedText(32),
          PeerAddr: address,
          RelayedThrough: list(address, 1000),
        }),
        10_000,
      ),
    }),
    100_000,
  ),
});
type RelayState = v.InferOutput<typeof Relays>["Relays"][number];

const Device = v.object({ name: boundedText(64), cidr: list(address, 1000) });
const Version = v.object({ version: boundedText(64) });
const Outcome = v.object({ ok: v.boolean(), reason: boundedText(1_000_000) });
/** Learned and reported underlay addresses of a node, by the node that reported them. */
const KnownSchema = v.nullable(
  v.record(
    address,
    v.object({ learned: list(address, 1000), reported: list(address, 1000), relay: list(address, 1000) }),
  ),
);
export type KnownAddresses = NonNullable<v.InferOutput<typeof KnownSchema>>;

/** The commands. Addresses of nodes are overlay addresses. */
export type LocalApi = {
  /** The established tunnels. Entries that do not parse are left out: one peer must not hide the others. */
  hostmap(): Promise<Tunnel[]>;
  /** Reads config.yml again. `restartKeys`: changed keys that apply only at the next start. Rejects if a part failed. */
  reload(): Promise<{ restartKeys: string[]; needsRestart: boolean }>;
  /** Closes a tunnel; with `localOnly` without a message to the peer. False if there is none. */
  closeTunnel(address: string, options?: { localOnly: boolean }): Promise<boolean>;
  /** Starts a handshake, with `remote` (host:port) at once. False if there is a tunnel or a handshake already. */
  createTunnel(address: string, remote?: string): Promise<boolean>;
  /** The addresses known of a node now. Also sends a query, whose answer a later call shows. */
  queryLighthouse(address: string): Promise<KnownAddresses>;
  relays(): Promise<RelayState[]>;
  device(): Promise<v.InferOutput<typeof Device>>;
  version(): Promise<string>;
};

/** The engine answers all but a reload in milliseconds. */
const answerMs = 2000;
/** A reload with 20,000 blocklist entries takes 0.3 s. */
const reloadMs = 10_000;
/** Characters of a reason in errors. */
const longestReason = 400;

/**
 * All calls reject with engine_unreachable if nothing answers at the address in time, and with engine_failed if the engine
 * refuses the command or sends an answer that is not understood.
 */
export function localApi(socketPath: string | undefined, system: Pick<System, "sleep">): LocalApi {
  const ask = (
    command: string,
    args: readonly string[] = [],
    params: Record<string, boolean | string> = {},
  ) => exchange(socketPath, { version: 1, command, args, params }, answerMs, system);
  /** Asks for a change of a tunnel. False if the engine's reason is one that the caller expects. */
  const change = async (
    command: string,
    peer: string,
    { expected, params }: { expected: RegExp; params?: Record<string, boolean | string> },
  ) => {
    const { ok, reason } = readOutcome(await ask(command, [peer], params), command);
    if (!ok && !expected.test(reason)) throw refusedError(command, reason);
    return ok;
  };
  return {
    async hostmap() {
      const tunnels = result(await ask("list-hostmap"), Tunnels, "list-hostmap");
      return tunnels.flatMap((tunnel) => {
        const parsed = v.safeParse(Tunnel, tunnel);
        return parsed.success ? [parsed.output] : [];
      });
    },
    async reload() {
      const response = await exchange(socketPath, { version: 1, command: "reload" }, reloadMs, system);
      const { ok, reason } = readOutcome(response, "reload");
      if (!ok) throw refusedError("reload", reason);
      return readReload(reason);
    },
    closeTunnel: (peer, options) =>
      change("close-tunnel", peer, {
        expected: /^Could not find tunnel/,
        params: { "local-only": options?.localOnly === true },
      }),
    createTunnel: (peer, remote) =>
      change("create-tunnel", peer, { expected: /^Tunnel already/, params: given({ address: remote }) }),
    queryLighthouse: async (peer) =>
      result(await ask("query-lighthouse", [peer]), KnownSchema, "query-lighthouse") ?? {},
    relays: async () => result(await ask("print-relays"), Relays, "print-relays").Relays,
    device: async () => result(await ask("device-info"), Device, "device-info"),
    version: async () => result(await ask("version"), Version, "version").version,
  };
}

/** Reads the engine's reason: "Config reload was completed but requires a restart to fully apply, keys [listen.port tun.dev]". */
export function readReload(reason: string): { restartKeys: string[]; needsRestart: boolean } {
  const keys = /, keys \[([\w. ]*)\]$/.exec(reason)?.[1] ?? "";
  return {
    restartKeys: keys.split(" ").filter((key) => key !== ""),
    needsRestart: /requires a restart/.test(reason),
  };
}

/**
 * Reloads by the control socket. Returns the changed keys that apply only at the next start; undefined if the engine has
 * no socket: it is older, starts just now, or may not create one.
 */
export async function reloadByApi(
  socketPath: string | undefined,
  system: Pick<System, "sleep">,
): Promise<string[] | undefined> {
  try {
    return (await localApi(socketPath, system).reload()).restartKeys;
  } catch (error) {
    if (error instanceof AppError && isAbsent(error)) return undefined;
    throw error;
  }
}

/** A refusal of the command itself has an error and no result. */
function readOutcome(response: Answer, command: string): v.InferOutput<typeof Outcome> {
  if (response.result === undefined && response.error !== undefined)
    throw refusedError(command, response.error);
  return parse(response.result, Outcome, command);
}

function result<T extends v.GenericSchema>(response: Answer, schema: T, command: string): v.InferOutput<T> {
  if (response.error !== undefined) throw refusedError(command, response.error);
  return parse(response.result, schema, command);
}

function parse<T extends v.GenericSchema>(value: unknown, schema: T, command: string): v.InferOutput<T> {
  const parsed = v.safeParse(schema, value);
  if (parsed.success) return parsed.output;
  const where = v.getDotPath(parsed.issues[0]) ?? "";
  throw new AppError(
    "engine_failed",
    `The overlay engine answers "${command}" with something else than expected${where === "" ? "" : ` at ${where}`}`,
  );
}

function refusedError(command: string, reason: string): AppError {
  return new AppError(
    "engine_failed",
    `The overlay engine refuses "${command}": ${clean(reason, longestReason)}`,
  );
}
