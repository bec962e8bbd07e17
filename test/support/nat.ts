// Puts a host of a test network behind a router that translates addresses. The router takes over the host's public address.

import type { Host } from "./namespaces.ts";
import { runSync } from "./debian.ts";

/** masquerade: the same port for all destinations. random: another one for each. blocked: no UDP passes. */
export type Nat = "masquerade" | "random" | "blocked";

export function putBehindNat(host: Host, kind: Nat): Disposable & { change(kind: Nat): void } {
  const router = `${host.namespace}-nat`;
  const within = (...argv: string[]) => runSync(["nsenter", `--net=/run/netns/${router}`, "--", ...argv]);
  const number = host.address.split(".").at(-1) ?? "";
  const inner = `10.200.${number}`;
  runSync(["ip", "netns", "add", router]);
  host.run(["ip", "link", "set", "eth0", "netns", router]);
  within("ip", "link", "set", "lo", "up");
  within("ip", "addr", "add", `${host.address}/24`, "dev", "eth0");
  within("ip", "link", "set", "eth0", "up");
  within(..."ip link add inside type veth peer name eth0 netns".split(" "), host.namespace);
  within("ip", "addr", "add", `${inner}.1/24`, "dev", "inside");
  within("ip", "link", "set", "inside", "up");
  host.run(["ip", "addr", "add", `${inner}.2/24`, "dev", "eth0"]);
  host.run(["ip", "link", "set", "eth0", "up"]);
  host.run(["ip", "route", "add", "default", "via", `${inner}.1`]);
  within("sysctl", "-qw", "net.ipv4.ip_forward=1");
  const change = (next: Nat) => {
    const random = next === "random" ? " fully-random" : "";
    const blocked = next === "blocked" ? "meta l4proto udp drop" : "";
    const rules = `
      flush ruleset
      table ip nat {
        chain out { type nat hook postrouting priority 100; oifname "eth0" masquerade${random}; }
      }
      table inet filter {
        chain through { type filter hook forward priority 0; policy drop;
          ${blocked}
          iifname "inside" accept
          ct state established,related accept
          # A port that the router maps (port-mapper.ts).
          ct status dnat accept
        }
        # A packet from outside to a port without a mapping must not be answered by the router itself.
        chain in { type filter hook input priority 0; iifname "eth0" meta l4proto udp drop; }
      }`;
    Bun.spawnSync(["nsenter", `--net=/run/netns/${router}`, "--", "nft", "-f", "-"], {
      stdin: Buffer.from(rules),
    });
  };
  change(kind);
  return {
    change,
    [Symbol.dispose]: () => void Bun.spawnSync(["ip", "netns", "del", router], { stderr: "ignore" }),
  };
}
