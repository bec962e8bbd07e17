// Reads from an engine's log how the last handshake with a peer ended: the only sign of a lost tunnel to a peer that
// answers no ICMP, with an engine that does not report its tunnels (below 1.12).

import { joinHostPort } from "../../base/ip.ts";

/** A peer that is gone is tried with every probe, so its last line is recent. */
const recentMs = 60_000;

/** failed: the last handshake in the log timed out, within the last minute. */
export function lastHandshake(
  lines: readonly string[],
  address: string,
  now: number,
): "made" | "failed" | undefined {
  for (const line of lines.toReversed()) {
    if (!namesPeer(line, address)) continue;
    if (line.includes("Handshake message received") || line.includes("Handshake message sent")) {
      if (/"?stage"?[:=]"?2/.test(line)) return "made";
    }
    if (!line.includes("Handshake timed out")) continue;
    const at = Date.parse(/"?time"?[:=]"?([\dTZ:.+-]{19,35})/.exec(line)?.[1] ?? "");
    return now - at < recentMs ? "failed" : undefined;
  }
  return undefined;
}

/** `"vpnIp":"10.77.0.1"` up to 1.9, `"vpnAddrs":["10.77.0.1"]` from 1.10 on; without quotes in the format "text". */
function namesPeer(line: string, address: string): boolean {
  const at = line.indexOf("vpnIp") >= 0 ? line.indexOf("vpnIp") : line.indexOf("vpnAddrs");
  if (at < 0) return false;
  const [value = ""] = /^vpn\w+"?[:=](\[[^\]]*\]|"[^"]*"|\S*)/.exec(line.slice(at)) ?? [];
  return value.split(/[^\d.:a-f]+/).includes(address);
}

/** The peers whose last handshake timed out within the last minute. */
export function failedHandshakes(lines: readonly string[], now: number): string[] {
  const tried = lines.flatMap((line) => {
    if (!line.includes("Handshake timed out")) return [];
    const [, value = ""] = /vpn(?:Ip|Addrs)"?[:=](\[[^\]]*\]|"[^"]*"|\S*)/.exec(line) ?? [];
    return value.split(/[^\d.:a-f]+/).filter((each) => each.length > 2);
  });
  return [...new Set(tried)].filter((address) => lastHandshake(lines, address, now) === "failed");
}

/** Where the last handshake with each peer succeeded, directly, as far as these lines tell. The oldest first. */
export function madeHandshakes(lines: readonly string[]): { address: string; remote: string; at: number }[] {
  const made = lines.flatMap((line) => {
    if (!/Handshake message (received|sent)/.test(line) || !/"?stage"?[:=]"?2/.test(line)) return [];
    const [, value = ""] = /vpn(?:Ip|Addrs)"?[:=](\[[^\]]*\]|"[^"]*"|\S*)/.exec(line) ?? [];
    const [address] = value.split(/[^\d.:a-f]+/).filter((each) => each.length > 2);
    const at = Date.parse(/"?time"?[:=]"?([\dTZ:.+-]{19,35})/.exec(line)?.[1] ?? "");
    // An object up to engine 1.9, later a text. A list is in the line of a sent handshake: skip it.
    const [, host, port] = /"udpAddr":\{"ip":"([^"]+)","port":(\d+)\}/.exec(line) ?? [];
    const [, text] = /udpAddr"?[:=]"?([^\s",{]+:\d+)/.exec(line) ?? [];
    const remote = host === undefined || port === undefined ? text : joinHostPort(host, Number(port));
    return address === undefined || remote === undefined || Number.isNaN(at) ? [] : [{ address, remote, at }];
  });
  return [...new Map(made.map((each) => [each.address, each])).values()];
}
