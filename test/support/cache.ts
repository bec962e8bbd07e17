// Where engines, Debian trees and programs for tests are kept, each under the name of its version, so that every checkout of
// this user finds them. Removing it makes them anew.

import { homedir } from "node:os";
import { join } from "node:path";

export const cacheDirectory = join(
  process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"),
  "overlay-agent-tests",
);
