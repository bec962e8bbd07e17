// Reads from an engine's log how handshakes with peers ended, for engines that do not report their tunnels (below 1.12). For a
// peer that answers no ICMP, that is the only sign of a lost tunnel. The lines, in JSON up to 1.9 and from 1.10 on, and as text:
//
//   {"msg":"Handshake message received","handshake":{"stage":2},"udpAddr":{"ip":"203.0.113.2","port":4001},"vpnIp":"10.77.0.2"}
//   {"msg":"Handshake message sent","handshake":{"stage":2},"udpAddr":"203.0.113.3:4001","vpnAddrs":["10.77.0.3"]}
//   time="2026-11-22T12:00:00Z" level=info msg="Handshake timed out" udpAddrs="[192.0.2.1:4242]" vpnIp=10.77.0.1
//
// A handshake has two messages: stage 2 completes it.

import { joinHostPort } from "../../base/ip.ts";

/** A timeout of this age counts: the engine tries a silent peer again with every probe, so its last line is recent. */
const recentMs = 60_000;

/** failed: the last handshake in the log timed out, within the last minute. */
export function lastHandshake(
  lines: readonly string[],
  address: string,
  now: number,
): "made" | "failed" | undefined {
  for (const line of lines.toReversed()) {
    if (!peersIn(line).includes(address)) continue;
    if (isComplete(line)) return "made";
    if (hasTimedOut(line)) return now - timeOf(line) < recentMs ? "failed" : undefined;
  }
  return undefined;
}

/** The peers whose last handshake timed out within the last minute. */
export function failedHandshakes(lines: readonly string[], now: number): string[] {
  const tried = lines.filter(hasTimedOut).flatMap(peersIn);
  return [...new Set(tried)].filter((address) => lastHandshake(lines, address, now) === "failed");
}

/** The peers with which a handshake timed out since then. */
export function timedOutSince(lines: readonly string[], since: number): string[] {
  return [...new Set(lines.filter((line) => hasTimedOut(line) && timeOf(line) >= since).flatMap(peersIn))];
}

/**
 * Where the last handshake with each peer succeeded, as far as these lines tell, in the order of the first handshakes. The
 * lines of relayed handshakes have no address of the peer.
 */
export function madeHandshakes(lines: readonly string[]): { address: string; remote: string; at: number }[] {
  const made = lines.filter(isComplete).flatMap((line) => {
    const [address] = peersIn(line);
    const at = timeOf(line);
    // An object up to engine 1.9, later a text. A list is in the line of a sent handshake: skip it.
    const [, host, port] = /"udpAddr":\{"ip":"([^"]+)","port":(\d+)\}/.exec(line) ?? [];
    const [, text] = /udpAddr"?[:=]"?([^\s",{]+:\d+)/.exec(line) ?? [];
    const remote = host === undefined || port === undefined ? text : joinHostPort(host, Number(port));
    return address === undefined || remote === undefined || Number.isNaN(at) ? [] : [{ address, remote, at }];
  });
  return [...new Map(made.map((each) => [each.address, each])).values()];
}

const isComplete = (line: string) =>
  /Handshake message (received|sent)/.test(line) && /"?stage"?[:=]"?2/.test(line);

const hasTimedOut = (line: string) => line.includes("Handshake timed out");

/** The time of the line, ms; NaN without one. */
const timeOf = (line: string) => Date.parse(/"?time"?[:=]"?([\dTZ:.+-]{19,35})/.exec(line)?.[1] ?? "");

/** The overlay addresses of the peer. */
function peersIn(line: string): string[] {
  const [, value = ""] = /vpn(?:Ip|Addrs)"?[:=](\[[^\]]*\]|"[^"]*"|\S*)/.exec(line) ?? [];
  // The shortest address has three characters (::1). Shorter parts come from quotes and brackets.
  return value.split(/[^\d.:a-f]+/).filter((each) => each.length > 2);
}
