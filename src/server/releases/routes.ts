// Serves a published release to networks without internet access: the files of one directory, unchanged. The publisher
// signs each file, so agents need not trust this server.

import { join } from "node:path";
import type { releasesApi } from "../../api/pages.ts";
import { AppError } from "../../base/errors.ts";
import type { Handlers } from "../http/attach.ts";

export const releaseHandlers = (directory: string): Handlers<typeof releasesApi> => ({
  async file(call) {
    // Stays in the directory: the pattern of the path (src/api/pages.ts) admits a single name without a leading dot.
    const file = Bun.file(join(directory, call.param("name")));
    const found = await file.stat().catch(() => undefined);
    if (found?.isFile() !== true) throw new AppError("not_found", "There is no such file.");
    return {
      raw: file,
      headers: { "Content-Type": "application/octet-stream", "Cache-Control": "no-cache" },
    };
  },
});
