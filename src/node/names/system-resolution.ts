// Makes the system ask our resolver, in the way that src/platform/names-places.ts chooses, and undoes it after a crash.

import { resolverAddress, type NamesPlaces } from "../../platform/names-places.ts";
import { windowsRegistry } from "../../platform/windows/registry.ts";
import { clearLinks, makeLinks } from "./resolved-links.ts";
import type { ResolutionSettings } from "./lasting-settings.ts";
import { clearNrpt, makeNrpt } from "./nrpt-rules.ts";
import { clearResolverFiles, makeResolverFiles, resolverDirectory } from "./resolver-files.ts";

type SystemWay = NamesPlaces["way"];
/** `search`: programs find short names too (only with systemd-resolved). */
type Deps = { monotonic: () => number; search?: boolean };

/** systemd-resolved, or /etc/hosts where programs do not ask it; rules of Windows; files of macOS. */
export function openWay(way: SystemWay, { monotonic, search = false }: Deps): ResolutionSettings {
  if (way === "nrpt") return makeNrpt({ registry: windowsRegistry, host: resolverAddress.host, monotonic });
  if (way === "resolver_files")
    return makeResolverFiles({ directory: resolverDirectory, server: resolverAddress, monotonic });
  return makeLinks(resolverAddress, { monotonic, search });
}

/** Removes what a killed process has left. */
export async function clearWay(way: SystemWay): Promise<void> {
  if (way === "nrpt") return clearNrpt(windowsRegistry);
  if (way === "resolver_files") return clearResolverFiles(resolverDirectory);
  return clearLinks(resolverAddress);
}
