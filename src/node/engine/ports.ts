// Tests whether UDP ports of this machine are free, busy (with the process, if the kernel shows it) or forbidden. Ports
// of our own engines count as available. Changes nothing.

import { createSocket } from "node:dgram";
import { join } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { listenPort } from "../files/config/read-config.ts";
import { findEngineProcess } from "./engine-process.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { holderOf, type Holder } from "../../platform/network/port-holder.ts";

export type Family = "ipv4" | "ipv6";

export type PortState = {
  port: number;
  family: Family;
  available: boolean;
  reason?: string;
  process?: Holder;
};

/** `port`: 0: any free one. `pid`: of the organization's engine; undefined: it does not run. */
export type EnginePort = { slug: string; port: number; pid: number | undefined };

/** The ports of the registered organizations, and the processes of their engines. */
export function readEnginePorts(configRoot: string): EnginePort[] {
  return listOrganizations(configRoot).map((slug) => {
    const directory = join(configRoot, slug);
    const pid = findEngineProcess(join(directory, "config.yml"))?.pid;
    return { slug, port: listenPort(directory), pid };
  });
}

const portsForm = /^(\d{1,5})(?:-(\d{1,5}))?$/;

/** Parses words such as `4242`, `4242,4243` and `5000-5003` to sorted, unique ports. Throws usage. */
export function parsePorts(words: readonly string[]): number[] {
  const ports = words
    .flatMap((word) => word.split(","))
    .flatMap((part) => {
      const [, first = "", last = first] = portsForm.exec(part) ?? [];
      const from = Number(first);
      const to = Number(last);
      if (first === "" || from < 1 || to > 65_535 || from > to) {
        throw new AppError(
          "usage",
          `"${part}" is neither a UDP port (1 to 65535) nor a range such as 5000-5003`,
        );
      }
      return Array.from({ length: to - from + 1 }, (_, index) => from + index);
    });
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** One result for each address family of this machine. */
export async function examinePort(port: number, engines: readonly EnginePort[]): Promise<PortState[]> {
  const states: PortState[] = [];
  for (const family of ["ipv4", "ipv6"] as const) {
    const state = await examine(port, family, engines);
    if (state !== undefined) states.push(state);
  }
  return states;
}

async function examine(
  port: number,
  family: Family,
  engines: readonly EnginePort[],
): Promise<PortState | undefined> {
  const error = await tryBind(port, family);
  if (error === undefined) return { port, family, available: true };
  switch (systemErrorCode(error)) {
    case "EAFNOSUPPORT":
    case "EADDRNOTAVAIL":
      // This machine does not have this address family.
      return undefined;
    case "EACCES":
    case "EPERM":
      return {
        port,
        family,
        available: false,
        reason: "it is forbidden to this user: run the command as root",
      };
    case "EADDRINUSE":
      return busy(port, family, engines);
    default:
      return { port, family, available: false, reason: messageOf(error) };
  }
}

function busy(port: number, family: Family, engines: readonly EnginePort[]): PortState {
  const holder = holderOf(port, family);
  if (holder === undefined) {
    return {
      port,
      family,
      available: false,
      reason: "another program uses it (run the command as root to see which)",
    };
  }
  const own = engines.find(({ pid }) => pid === holder.pid);
  const reason =
    own === undefined
      ? `${holder.name} (process ${holder.pid}) uses it`
      : `the engine of ${own.slug} uses it`;
  return { port, family, available: own !== undefined, reason, process: holder };
}

/** Binds the port for a moment. Returns the error if that fails. */
function tryBind(port: number, family: Family): Promise<Error | undefined> {
  return new Promise((resolve) => {
    // An IPv6-only socket, so that each family is tested separately.
    const socket = family === "ipv4" ? createSocket("udp4") : createSocket({ type: "udp6", ipv6Only: true });
    socket.once("error", (error) => {
      socket.close();
      resolve(error);
    });
    socket.bind({ port, address: family === "ipv4" ? "0.0.0.0" : "::", exclusive: true }, () =>
      socket.close(() => resolve(undefined)),
    );
  });
}
