// What a machine calls itself in the list of its user's sessions. It proves nothing.

import { hostname } from "node:os";
import { brand } from "../../../brand.ts";
import { buildInfo } from "../../../build-info.ts";

export function signInHeaders(): Record<string, string> {
  // A header has ASCII only.
  const machine =
    hostname()
      .replaceAll(/[^\x21-\x7e]/g, "")
      .slice(0, 100) || "unnamed";
  return { "User-Agent": `${brand.executable} ${buildInfo.version} on ${machine}` };
}
