// Hands out a published release to machines that join and to networks without internet access: files of a directory,
// unchanged, and the script that installs them. The publisher signs, so installed agents need not trust this server.

import type { releasesApi } from "../../api/releases.ts";
import { AppError } from "../../base/errors.ts";
import { placesOf, releaseFile } from "../../release/handed-out.ts";
import { installerOf } from "../../release/install-script.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";

export function releaseHandlers(
  services: Pick<Services, "system" | "publicUrl" | "caPem" | "releasesDirectory" | "releaseKeys">,
): Handlers<typeof releasesApi> {
  const places = placesOf(services);
  return {
    install: () => ({
      raw: installerOf(places, services).script,
      headers: { "Content-Type": "text/x-shellscript; charset=utf-8", "Cache-Control": "no-cache" },
    }),
    installer() {
      try {
        const { command, version, targets } = installerOf(places, services);
        return { body: { command, version, targets, reason: null } };
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        const reason = [error.message, error.details.hint].filter((each) => each !== undefined).join(". ");
        return { body: { command: null, version: null, targets: [], reason } };
      }
    },
    file: (call) => fileAt(releaseFile(places, call.param("name"))),
    apt: (call) => fileAt(releaseFile(places, `apt/${call.param("name")}`)),
    rpm: (call) => fileAt(releaseFile(places, `rpm/${call.param("name")}`)),
    repodata: (call) => fileAt(releaseFile(places, `rpm/repodata/${call.param("name")}`)),
  };
}

/** It stays in its directory: the patterns of the path (src/api/releases.ts) admit names without a leading dot. */
async function fileAt(path: string | undefined) {
  // Undefined: no directory of releases has it. The empty path is no file.
  const file = Bun.file(path ?? "");
  const found = await file.stat().catch(() => undefined);
  if (found?.isFile() !== true) throw new AppError("not_found", "There is no such file.");
  return {
    raw: file,
    headers: { "Content-Type": "application/octet-stream", "Cache-Control": "no-cache" },
  };
}
