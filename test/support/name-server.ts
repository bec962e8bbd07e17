// A name server inside a host of a test network, at the addresses of this machine's name servers. It answers from a JSON
// file (name to an IPv4 or IPv6 address), which the test may rewrite at any time. Other names do not exist.

import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { addressBytes, parseAddress } from "../../src/base/ip.ts";
import type { Host } from "./namespaces.ts";

/** Resolves when it answers. Kill it for an outage. */
export async function startNameServer(host: Host, file: string): Promise<Bun.Subprocess> {
  const configured = readFileSync("/etc/resolv.conf", "utf8").matchAll(/^nameserver\s+(\d[\d.]+)/gm);
  for (const [, address = ""] of configured) {
    if (!address.startsWith("127.")) host.run(["ip", "addr", "replace", `${address}/32`, "dev", "lo"]);
  }
  const argv = host.inside([process.execPath, join(import.meta.dir, "name-server.ts"), file]);
  const child = Bun.spawn(argv, { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const { value } = await child.stdout.getReader().read();
  if (value === undefined)
    throw new Error(`The name server in ${host.name} ended with ${await child.exited}`);
  return child;
}

/** Parses a query with one question (RFC 1035). */
function answer(query: Buffer, names: Record<string, string>): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const text = names[labels.join(".").toLowerCase()];
  const address = parseAddress(text ?? "");
  const type = address?.family === 6 ? 28 : 1;
  const found = address !== undefined && query.readUInt16BE(at + 1) === type;
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(address === undefined ? 0x8183 : 0x8180, 2);
  [1, found ? 1 : 0, 0, 0].forEach((count, index) => header.writeUInt16BE(count, 4 + 2 * index));
  const question = query.subarray(12, at + 5);
  const bytes = address === undefined ? [] : addressBytes(address);
  const record = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 1, 0, bytes.length, ...bytes]);
  return Buffer.concat([header, question, ...(found ? [record] : [])]);
}

if (import.meta.main) {
  const [file = ""] = process.argv.slice(2);
  const socket = createSocket("udp4");
  // The client may have ended.
  socket.on("error", () => undefined);
  socket.on("message", (query, { address, port }) => {
    const names = JSON.parse(readFileSync(file, "utf8")) as Record<string, string>;
    socket.send(answer(query, names), port, address);
  });
  socket.bind(53, "0.0.0.0", () => process.stdout.write("up"));
}
