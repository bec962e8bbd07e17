// A host of a test network whose firewall drops all UDP between it and others. Its own loopback stays.

import type { Host } from "./namespaces.ts";

export function nft(host: Host, rules: string): void {
  const { success, stderr } = Bun.spawnSync(host.inside(["nft", "-f", "-"]), { stdin: Buffer.from(rules) });
  if (!success) throw new Error(stderr.toString());
}

export function blockUdp(host: Host): void {
  nft(
    host,
    `table inet blocked {
       chain out { type filter hook output priority 0; oifname "eth0" meta l4proto udp drop; }
       chain in { type filter hook input priority 0; iifname "eth0" meta l4proto udp drop; }
     }`,
  );
}

export const permitUdp = (host: Host): void => nft(host, "delete table inet blocked");
