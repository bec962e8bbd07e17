// Engines on one small network without a control plane: each host has a hand-made configuration, the first one is the
// lighthouse. For tests of what an engine itself does.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isOlderThan, parseEngineVersion } from "../../src/engine/features.ts";
import { localApiSection } from "../../src/node/files/config/config-file.ts";
import { controlSocket } from "../../src/platform/systemd/control-socket.ts";
import { stringifyYaml, type YamlMap } from "../../src/base/yaml.ts";
import { runSync } from "./debian.ts";
import type { Engine } from "./engines.ts";
import { makeLan, startPing, type Host, type Lan } from "./namespaces.ts";
import { startEngine, type RunningEngine } from "./overlay.ts";

export type EngineHost = {
  host: Host;
  /** Overlay address. */
  address: string;
  directory: string;
  engine: RunningEngine;
  /** The control socket. */
  socket: string;
  /** Writes config.yml again with other settings. */
  configure(settings: YamlMap): void;
};

export type EngineNetwork = AsyncDisposable & { lan: Lan; nodes: EngineHost[] };

export type EngineOptions = {
  /** Called before the engines start. */
  prepare?(lan: Lan): void;
  /** Networks behind a host. */
  subnets?(at: number): readonly string[];
  /** How many of the hosts, the first ones, have an engine. */
  engines?: number;
};

/** Settings replace whole sections of the configuration of every host. */
export async function startEngines(
  engine: Engine | ((at: number) => Engine),
  root: string,
  names: readonly string[],
  settings: (at: number) => YamlMap = () => ({}),
  { prepare, subnets = () => [], engines = names.length }: EngineOptions = {},
): Promise<EngineNetwork> {
  const engineOf = typeof engine === "function" ? engine : () => engine;
  const lan = makeLan(names);
  const ca = (each: string) => join(root, `ca.${each}`);
  // The oldest of them: all read its certificates.
  const versionOf = ({ version }: Engine) => parseEngineVersion(version);
  const { nebulaCert } = names
    .map((_, at) => engineOf(at))
    .reduce((one, other) => (isOlderThan(versionOf(other), versionOf(one)) ? other : one));
  runSync([nebulaCert, "ca", "-name", "test", "-out-crt", ca("crt"), "-out-key", ca("key")]);
  const nodes: EngineHost[] = [];
  const dispose = async () => {
    for (const { engine } of nodes) engine[Symbol.dispose]();
    lan.remove();
  };
  try {
    prepare?.(lan);
    for (const [at, name] of names.slice(0, engines).entries()) {
      const directory = join(root, name);
      mkdirSync(join(directory, "run"), { recursive: true, mode: 0o700 });
      const address = `10.78.0.${at + 1}`;
      const out = ["-out-crt", join(directory, "host.crt"), "-out-key", join(directory, "host.key")];
      const signed = ["-name", name, "-ip", `${address}/24`, "-ca-crt", ca("crt"), "-ca-key", ca("key")];
      const behind = subnets(at).length === 0 ? [] : ["-subnets", subnets(at).join(",")];
      runSync([nebulaCert, "sign", ...signed, ...behind, ...out]);
      const configure = (own: YamlMap) =>
        writeFileSync(
          join(directory, "config.yml"),
          stringifyYaml({ ...configOf(root, directory, at, lan), ...settings(at), ...own }),
        );
      configure({});
      const socket = controlSocket(directory);
      if (socket === undefined) throw new Error(`${directory} is too long for a socket`);
      const running = await startEngine(lan.host(name), engineOf(at).nebula, directory);
      nodes.push({ host: lan.host(name), address, directory, engine: running, socket, configure });
    }
  } catch (error) {
    await dispose();
    throw error;
  }
  return { lan, nodes, [Symbol.asyncDispose]: dispose };
}

/** Resolves when packets pass. An engine has its address a moment after it says that it is active. */
export async function meet(from: EngineHost, to: EngineHost, ms = 10_000): Promise<void> {
  const ping = startPing(from.host, to.address);
  await ping.reply(ms);
  await ping.stop();
}

function configOf(root: string, directory: string, at: number, lan: Lan): YamlMap {
  const all = [{ port: "any", proto: "any", host: "any" }];
  const lighthouse = lan.hosts[0]?.address ?? "";
  return {
    pki: {
      ca: join(root, "ca.crt"),
      cert: join(directory, "host.crt"),
      key: join(directory, "host.key"),
    },
    static_host_map: { "10.78.0.1": [`${lighthouse}:4242`] },
    lighthouse: { am_lighthouse: at === 0, interval: 5, hosts: at === 0 ? [] : ["10.78.0.1"] },
    listen: { host: "0.0.0.0", port: 4242 },
    punchy: { punch: true, respond: true },
    tun: { dev: `pair${at}`, mtu: 1300 },
    firewall: { outbound: all, inbound: all },
    logging: { level: "info", format: "json" },
    local_api: localApiSection(directory),
  };
}
