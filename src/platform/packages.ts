// Package managers by their absolute paths: commands that install packages, and the package that owns a file. Must not
// run an installation.

import { existsSync } from "node:fs";
import type { System } from "../system.ts";

export type PackageManager = {
  name: string;
  /** Commands in order. All except the last only refresh package lists, and may fail. */
  install: readonly (readonly string[])[];
};

const engine = "nebula";

const managers: readonly { program: string; name: string; refresh?: string[]; install: string[] }[] = [
  {
    name: "apt",
    program: "/usr/bin/apt-get",
    refresh: ["update", "-q"],
    install: ["install", "-y", "-q", "--no-install-recommends"],
  },
  { name: "dnf", program: "/usr/bin/dnf", install: ["install", "-y", "-q"] },
  {
    name: "apk",
    program: "/sbin/apk",
    install: ["add", "--no-progress", "--update-cache", "--upgrade"],
  },
  { name: "pacman", program: "/usr/bin/pacman", install: ["-Sy", "--noconfirm", "--needed"] },
  { name: "brew", program: "/opt/homebrew/bin/brew", install: ["install"] },
  { name: "brew", program: "/usr/local/bin/brew", install: ["install"] },
];

/** This machine's package manager and its commands to install `packages`. Undefined if none is known. */
export function findPackageManager(packages: readonly string[] = [engine]): PackageManager | undefined {
  const found = managers.find(({ program }) => existsSync(program));
  if (found === undefined) return undefined;
  const { name, program, refresh, install } = found;
  return {
    name,
    install: [...(refresh === undefined ? [] : [[program, ...refresh]]), [program, ...install, ...packages]],
  };
}

/** Queries for the package that owns a file, tried in this order. `name` extracts the package from the output. */
const owners: readonly { program: string; ask: string[]; name: RegExp; update: (name: string) => string }[] =
  [
    {
      program: "/usr/bin/dpkg-query",
      ask: ["-S"],
      name: /^([^:\s]+)/,
      update: (name) => `apt-get install --only-upgrade ${name}`,
    },
    {
      program: "/usr/bin/rpm",
      ask: ["-qf", "--queryformat", "%{NAME}"],
      name: /^(\S+)$/,
      update: (name) => `dnf upgrade ${name}`,
    },
    {
      program: "/sbin/apk",
      ask: ["info", "--quiet", "--who-owns"],
      name: /^(\S+)/,
      update: (name) => `apk upgrade ${name}`,
    },
    {
      program: "/usr/bin/pacman",
      ask: ["-Qqo"],
      name: /^(\S+)/,
      update: (name) => `pacman -Syu ${name}`,
    },
  ];

/** The command that updates the package of a file; undefined if no package owns it. */
export async function findOwner(path: string, system: Pick<System, "run">): Promise<string | undefined> {
  if (path.startsWith("/nix/store/")) return "nix profile upgrade";
  if (path.startsWith("/snap/")) return "snap refresh";
  if (path.includes("/Cellar/")) return "brew upgrade";
  for (const { program, ask, name, update } of owners) {
    if (!existsSync(program)) continue;
    const { status, stdout } = await system.run([program, ...ask, path]);
    const found = status === 0 ? name.exec(stdout.trim())?.[1] : undefined;
    if (found !== undefined) return update(found);
  }
  return undefined;
}
