// Whether UDP ports can be taken on this machine: free, busy (and by whom, where the kernel tells) or forbidden. What our
// own engines hold counts as available. Changes nothing.

import { createSocket } from "node:dgram";
import { join } from "node:path";
import * as v from "valibot";
import { AppError, messageOf, systemErrorCode } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import { readOwnYaml } from "../files/read-yaml.ts";
import { findEngine } from "./found-engine.ts";
import { listOrganizations } from "../files/organizations.ts";
import { holderOf, type Holder } from "../../platform/port-holder.ts";

export type Family = "ipv4" | "ipv6";

export type PortState = {
  port: number;
  family: Family;
  available: boolean;
  reason?: string;
  process?: Holder;
};

export type EnginePort = { slug: string; port: number; pid: number | undefined };

const Listen = v.object({ listen: v.optional(v.object({ port: v.optional(v.number()) })) });

/** The ports that the registered organizations listen on (0: any free one), and their engines' processes. */
export function readEnginePorts(configRoot: string): EnginePort[] {
  return listOrganizations(configRoot).map((slug) => {
    const path = join(configRoot, slug, "config.yml");
    return { slug, port: portIn(path), pid: findEngine(path)?.pid };
  });
}

/** 0 also where the configuration is damaged: that is examined elsewhere, and the other organizations' ports here. */
function portIn(path: string): number {
  try {
    return v.parse(Listen, readOwnYaml(readTextIfThere(path) ?? "{}", path)).listen?.port ?? 0;
  } catch {
    return 0;
  }
}

const asked = /^(\d{1,5})(?:-(\d{1,5}))?$/;

/** Ports out of words such as `4242`, `4242,4243` and `5000-5003`, each once, in order. Throws usage. */
export function parsePorts(words: readonly string[]): number[] {
  const ports = words
    .flatMap((word) => word.split(","))
    .flatMap((part) => {
      const [, first = "", last = first] = asked.exec(part) ?? [];
      const [from, to] = [Number(first), Number(last)];
      if (first === "" || from < 1 || to > 65_535 || from > to) {
        throw new AppError("usage", `"${part}" is no UDP port (1 to 65535) and no range such as 5000-5003`);
      }
      return Array.from({ length: to - from + 1 }, (_, at) => from + at);
    });
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** One answer for each family that this machine speaks. */
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
  const error = await tryToTake(port, family);
  if (error === undefined) return { port, family, available: true };
  switch (systemErrorCode(error)) {
    case "EAFNOSUPPORT":
    case "EADDRNOTAVAIL":
      // This machine does not speak that family at all.
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
    return { port, family, available: false, reason: "another program holds it (root may see which)" };
  }
  const own = engines.find(({ pid }) => pid === holder.pid);
  const reason =
    own === undefined
      ? `${holder.name} (process ${holder.pid}) holds it`
      : `the engine of ${own.slug} holds it`;
  return { port, family, available: own !== undefined, reason, process: holder };
}

/** What keeps this program from taking the port at this moment, if anything does. */
function tryToTake(port: number, family: Family): Promise<Error | undefined> {
  return new Promise((resolve) => {
    // A socket of IPv6 alone, so that each family is asked by itself.
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
