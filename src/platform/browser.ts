// The program that opens a page in the user's browser. Its last argument is the address.

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { System } from "../base/system.ts";

const opener = "/usr/bin/xdg-open";

/** Undefined where there is no browser, as on a machine without a display, or one that is reached by SSH. */
export function browserOf({
  platform,
  env,
}: Pick<System, "platform" | "env">): readonly string[] | undefined {
  if (env["SSH_CONNECTION"] !== undefined) return undefined;
  if (platform === "darwin") return ["/usr/bin/open"];
  if (platform === "win32") {
    const rundll = join(env["SystemRoot"] ?? String.raw`C:\Windows`, "System32", "rundll32.exe");
    return [rundll, "url.dll,FileProtocolHandler"];
  }
  const hasDisplay = env["DISPLAY"] !== undefined || env["WAYLAND_DISPLAY"] !== undefined;
  if (!hasDisplay || !existsSync(opener)) return undefined;
  // Start it in the background and without our pipes: it may run as long as the browser.
  return ["/bin/sh", "-c", `${opener} "$1" >/dev/null 2>&1 &`, "sh"];
}
