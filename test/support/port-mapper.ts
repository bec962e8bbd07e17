// miniupnpd on the router before a host (nat.ts): it maps ports by PCP, NAT-PMP and UPnP-IGD. It wants an address of the
// internet outside, so the network of the test has one.

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./debian.ts";
import type { Host } from "./namespaces.ts";
import { until } from "./until.ts";

/** For makeLan. */
export const publicPrefix = "45.32.9";

export type PortMapper = AsyncDisposable & {
  /** Lines such as "UDP:4242:10.200.2.2:4242:…" of its file of leases. */
  leases(): string[];
  /** The rules of the kernel. */
  rules(): string;
  /** Then it knows NAT-PMP alone, if its settings have no UPnP: a version of miniupnpd that does is not packaged. */
  dropPcp(): void;
  stop(): Promise<void>;
  /** `forgets`: like a router after a loss of power. */
  restart(options?: { forgets?: boolean; settings?: readonly string[] }): Promise<void>;
};

export async function startPortMapper(
  host: Host,
  directory: string,
  settings: readonly string[] = [],
): Promise<PortMapper> {
  const inside = ["nsenter", `--net=/run/netns/${host.namespace}-nat`, "--"];
  const [config, leases] = [
    join(directory, `${host.name}.upnp.conf`),
    join(directory, `${host.name}.leases`),
  ];
  const load = (rules: string, what: string) => {
    const options = { stdin: Buffer.from(rules), stderr: "inherit" } as const;
    if (!Bun.spawnSync([...inside, "nft", "-f", "-"], options).success)
      throw new Error(`nft refused ${what}`);
  };
  const makeTable = () => {
    const table = `
      table inet upnp
      delete table inet upnp
      table inet upnp {
        chain forward { type filter hook forward priority 0; policy accept; jump miniupnpd; }
        chain miniupnpd { }
        chain prerouting { type nat hook prerouting priority -100; policy accept; jump prerouting_miniupnpd; }
        chain postrouting { type nat hook postrouting priority 100; policy accept; jump postrouting_miniupnpd; }
        chain prerouting_miniupnpd { }
        chain postrouting_miniupnpd { }
      }`;
    load(table, "the table of miniupnpd");
  };
  let child: Bun.Subprocess | undefined;
  const start = async (own: readonly string[]) => {
    const lines = [
      "ext_ifname=eth0",
      "listening_ip=inside",
      "port=5000",
      ...(own.includes("enable_natpmp=no") ? [] : ["enable_natpmp=yes"]),
      "enable_upnp=yes",
      `lease_file=${leases}`,
      "upnp_table_name=upnp",
      "upnp_nat_table_name=upnp",
      "uuid=a3b1c2d4-0000-4000-8000-000000000001",
      ...own,
    ];
    writeFileSync(config, `${lines.join("\n")}\n`);
    child = Bun.spawn([...inside, "/usr/sbin/miniupnpd", "-d", "-f", config, "-P", `${config}.pid`], {
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    await until(
      () => runSync([...inside, "ss", "-lun"]).includes(own.includes("enable_natpmp=no") ? ":1900" : ":5351"),
      {
        what: "miniupnpd",
        ms: 10_000,
      },
    );
  };
  const stop = async () => {
    child?.kill("SIGKILL");
    await child?.exited;
  };
  makeTable();
  await start(settings);
  return {
    leases: () => (existsSync(leases) ? readFileSync(leases, "utf8").split("\n").filter(Boolean) : []),
    rules: () => runSync([...inside, "nft", "list", "table", "inet", "upnp"]),
    dropPcp() {
      // The first byte of a datagram is the version of its protocol.
      load(
        `table inet pcp {
           chain in { type filter hook input priority -10; udp dport 5351 @th,64,8 2 drop; }
         }`,
        "to drop PCP",
      );
    },
    stop,
    async restart({ forgets = false, settings: own = settings } = {}) {
      await stop();
      if (forgets) rmSync(leases, { force: true });
      if (forgets) makeTable();
      await start(own);
    },
    [Symbol.asyncDispose]: stop,
  };
}
