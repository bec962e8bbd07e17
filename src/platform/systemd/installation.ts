// The changes that install or remove the product's systemd units. Must not run programs or write files; machine-changes.ts does that.

import { brand } from "../../brand.ts";
import type { Change } from "../machine-changes.ts";
import {
  authTimer,
  authUnit,
  daemonUnit,
  edgeTemplate,
  edgeUnit,
  engineUnit,
  exitUnit,
  guardUnit,
  namesCacheRemoval,
  namesUnit,
  systemctl,
  templateUnit,
  unitDirectory,
  type OrganizationMode,
} from "./systemd.ts";
import {
  authService,
  authTimerUnit,
  daemonService,
  edgeService,
  engineTemplate,
  type UnitPlaces,
} from "./units.ts";
import { lacksProgram } from "./unit-file.ts";

const servers = (organizations: readonly OrganizationMode[]) =>
  organizations.filter(({ mode }) => mode === "server");

/** The unit files for these organizations, name → text, and the units to start. */
export function systemdUnits(
  organizations: readonly OrganizationMode[],
  places: UnitPlaces,
): { files: ReadonlyMap<string, string>; running: readonly string[] } {
  const engines = servers(organizations);
  const files = new Map<string, string>();
  const running: string[] = [];
  if (engines.length > 0) {
    files.set(templateUnit, engineTemplate(places));
    files.set(edgeTemplate, edgeService(places));
    files.set(authUnit, authService(places));
    files.set(authTimer, authTimerUnit());
    running.push(...engines.map(({ slug }) => engineUnit(slug)), authTimer);
  }
  // Also without any organization: the daemon runs those that register later.
  if (engines.length < organizations.length || organizations.length === 0) {
    files.set(daemonUnit, daemonService(places));
    running.push(daemonUnit);
  }
  return { files, running };
}

export type SystemdState = {
  /** Whether the group exists whose members may use the daemon. */
  hasGroup: boolean;
  /** Name → content of the product's installed unit files. */
  files: ReadonlyMap<string, string>;
  /** The same of a distribution package. */
  packaged: ReadonlyMap<string, string>;
  /** Names of the units that start at boot. */
  enabled: ReadonlySet<string>;
};

/** Installs or updates the units; unchanged ones are not restarted. `onlyMissing`: leaves units that are there as they are. */
export function systemdInstallation(
  organizations: readonly OrganizationMode[],
  places: UnitPlaces,
  state: SystemdState,
  { onlyMissing = false } = {},
): Change[] {
  const { files: all, running } = systemdUnits(organizations, places);
  const present = new Map([...state.packaged, ...state.files]);
  // A unit whose program was deleted counts as missing.
  const isThere = (text: string | undefined) => text !== undefined && !lacksProgram(text);
  const files = onlyMissing ? new Map([...all].filter(([name]) => !isThere(present.get(name)))) : all;
  const changed = [...files].filter(([name, text]) => present.get(name) !== text).map(([name]) => name);
  const changes: Change[] = [];
  let mustReload = changed.length > 0;
  if (!state.hasGroup) changes.push({ change: "run", argv: ["/usr/sbin/groupadd", "--system", brand.id] });
  for (const [name, content] of files) {
    const path = `${unitDirectory}/${name}`;
    if (state.packaged.get(name) !== content) changes.push({ change: "file", path, content, mode: 0o644 });
    else if (state.files.has(name)) {
      // The package's own unit says the same, and follows the upgrades of the package.
      changes.push({ change: "remove", path });
      mustReload = true;
    }
  }
  if (mustReload) changes.push(systemctl("daemon-reload"));
  // The daemon runs the organizations in desktop mode. A change of the mode that was killed may have left their units enabled.
  const stray = organizations
    .filter(({ mode }) => mode === "desktop")
    .flatMap(({ slug }) => [engineUnit(slug), edgeUnit(slug)])
    .filter((name) => state.enabled.has(name));
  if (stray.length > 0) changes.push(systemctl("disable", "--now", ...stray));
  changes.push(systemctl("enable", "--now", ...running));
  // check-auth starts these, where they are needed.
  const edges = servers(organizations).map(({ slug }) => edgeUnit(slug));
  /** The file that systemd reads the unit from. */
  const fileOf = (unit: string) => {
    if (unit.startsWith(`${brand.id}@`)) return templateUnit;
    return edges.includes(unit) ? edgeTemplate : unit;
  };
  // `enable --now` has started new units, and leaves those alone that run already.
  const stale = [...running, ...edges].filter(
    (unit) => changed.includes(fileOf(unit)) && present.has(fileOf(unit)),
  );
  if (stale.length > 0) changes.push(systemctl("try-restart", ...stale));
  return changes;
}

/** Stops and removes the instance of one organization; without a slug, all units. */
export function systemdRemoval(
  slug: string | undefined,
  organizations: readonly OrganizationMode[],
  state: Pick<SystemdState, "files" | "packaged">,
): Change[] {
  const known = new Set([...state.files.keys(), ...state.packaged.keys()]);
  if (slug !== undefined) {
    const hasOthers = organizations.some((each) => each.mode === "server" && each.slug !== slug);
    if (!known.has(templateUnit)) return [];
    const ownUnits = [engineUnit(slug), ...(known.has(edgeTemplate) ? [edgeUnit(slug)] : [])];
    if (hasOthers) return [systemctl("disable", "--now", ...ownUnits)];
    // The checks first: they could start the edge again.
    return [
      systemctl("disable", "--now", authTimer),
      systemctl("stop", authUnit),
      systemctl("disable", "--now", ...ownUnits),
    ];
  }
  const names = [...state.files.keys()];
  if (known.size === 0) return [];
  const slugs = servers(organizations).map((each) => each.slug);
  const units = [
    ...(known.has(templateUnit) ? slugs.map(engineUnit) : []),
    ...(known.has(edgeTemplate) ? slugs.map(edgeUnit) : []),
    ...[guardUnit, authTimer, daemonUnit, namesUnit, exitUnit].filter((name) => known.has(name)),
  ];
  return [
    ...(units.length === 0 ? [] : [systemctl("disable", "--now", ...units)]),
    ...(known.has(namesUnit) ? [namesCacheRemoval] : []),
    // A check may be waiting for changes now. Without its timer no other check follows.
    ...(known.has(authUnit) ? [systemctl("stop", authUnit)] : []),
    ...names.map((name): Change => ({ change: "remove", path: `${unitDirectory}/${name}` })),
    systemctl("daemon-reload"),
  ];
}
