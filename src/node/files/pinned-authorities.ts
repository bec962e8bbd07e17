// Lets downloads trust the CAs that registrations pinned: a control plane whose certificate is from its own CA also offers
// releases.

import { join } from "node:path";
import type { Trusting } from "../../release/download.ts";
import type { System } from "../../base/system.ts";
import { listOrganizations } from "./list-organizations.ts";
import { credentialsIfOwn, readApiCa } from "./organizations.ts";
import { refuseForeignDirectory } from "./own-files.ts";

/** The same system, whose requests to a registered control plane trust the authority that the registration pinned. */
export function trustingControlPlanes<T extends Pick<System, "fetch">>(
  configRoot: string,
  system: T,
): T & Trusting {
  const { fetch } = system;
  return {
    ...system,
    trusts: "control planes",
    fetch: (url: string, init: Parameters<typeof fetch>[1] = {}) => {
      const ca = pinnedFor(url, configRoot);
      return fetch(url, ca === undefined ? init : { ...init, tls: { ...init.tls, ca } });
    },
  };
}

/** The pinned CAs of all organizations whose control plane has the origin of this URL, as PEM. */
function pinnedFor(url: string, configRoot: string): string | undefined {
  const origin = URL.parse(url)?.origin;
  const found = slugsIn(configRoot).flatMap((slug) => {
    try {
      const directory = join(configRoot, slug);
      refuseForeignDirectory(directory);
      const base = credentialsIfOwn(directory)?.api_base;
      const ca = readApiCa(directory);
      return ca !== undefined && base !== undefined && URL.parse(base)?.origin === origin ? [ca] : [];
    } catch {
      // An organization that cannot be read must not stop an update of the program.
      return [];
    }
  });
  return found.length === 0 ? undefined : [...new Set(found)].join("\n");
}

function slugsIn(configRoot: string): string[] {
  try {
    return listOrganizations(configRoot);
  } catch {
    return [];
  }
}
