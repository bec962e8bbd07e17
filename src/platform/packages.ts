// The package managers that carry the overlay engine, by their own paths, and the commands that make them install
// it. Nothing here runs anything.

import { existsSync } from "node:fs";

export type PackageManager = {
  name: string;
  /** Commands in order; those before the last only refresh lists and may fail. */
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

/** The package manager of this machine that carries the engine, if there is one, told to install `packages`. */
export function findPackageManager(packages: readonly string[] = [engine]): PackageManager | undefined {
  const found = managers.find(({ program }) => existsSync(program));
  if (found === undefined) return undefined;
  const { name, program, refresh, install } = found;
  return {
    name,
    install: [...(refresh === undefined ? [] : [[program, ...refresh]]), [program, ...install, ...packages]],
  };
}
