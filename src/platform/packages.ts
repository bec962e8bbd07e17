// Package managers by their absolute paths: commands that install packages, and the package that owns a file. Must not
// run an installation.

import { existsSync } from "node:fs";
import type { System } from "../base/system.ts";

export type PackageManager = {
  name: string;
  /** Commands in order. All except the last only refresh package lists, and may fail. */
  install: readonly (readonly string[])[];
};

const engine = "nebula";

/** `refresh`: before an installation; the others refresh their lists with it. */
const managers: readonly { program: string; name: string; refresh?: string[]; install: string[] }[] = [
  {
    name: "apt",
    program: "/usr/bin/apt-get",
    // By default apt tries each source four times, with pauses, which takes half a minute without a network.
    refresh: ["update", "-q", "-o", "Acquire::Retries=1"],
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

type Owner = {
  program: string;
  /** Its arguments before the path of the file. */
  query: string[];
  /** The first group is the name of the package in the output. */
  nameForm: RegExp;
  /** The command that updates a package from a repository. */
  update(name: string): string;
  /** For packages that may have been installed from a file (our own): `install` is used if no repository offers a newer one. */
  fromFile?: {
    isOffered(name: string, system: Pick<System, "run">): Promise<boolean>;
    install(name: string): string;
  };
};

/** Queries for the package that owns a file, tried in this order. */
const owners: readonly Owner[] = [
  {
    program: "/usr/bin/dpkg-query",
    query: ["-S"],
    nameForm: /^([^:\s]+)/,
    update: (name) => `apt-get install --only-upgrade ${name}`,
    fromFile: {
      async isOffered(name, system) {
        const text = await answerOf(["/usr/bin/apt-cache", "policy", name], system);
        // The sources of a version in apt's table: "500 http://… Packages", or the list of installed packages.
        return [...text.matchAll(/^ {8} *-?\d+ (\S+)/gm)].some(
          ([, place]) => place?.startsWith("/") === false,
        );
      },
      install: (name) => `apt-get install ./${name}_….deb`,
    },
  },
  {
    program: "/usr/bin/rpm",
    query: ["-qf", "--queryformat", "%{NAME}"],
    nameForm: /^(\S+)$/,
    update: (name) => `dnf upgrade ${name}`,
    fromFile: {
      // Use the cache: a refusal must not wait for a network.
      isOffered: async (name, system) =>
        (await answerOf([dnf, "--quiet", "--cacheonly", "repoquery", name], system)).trim() !== "",
      install: (name) => `${existsSync(dnf) ? "dnf install" : "rpm -U"} ./${name}-….rpm`,
    },
  },
  {
    program: "/sbin/apk",
    query: ["info", "--quiet", "--who-owns"],
    nameForm: /^(\S+)/,
    update: (name) => `apk upgrade ${name}`,
  },
  {
    program: "/usr/bin/pacman",
    query: ["-Qqo"],
    nameForm: /^(\S+)/,
    update: (name) => `pacman -Syu ${name}`,
  },
];

const dnf = "/usr/bin/dnf";
const answerMs = 30_000;

async function answerOf(argv: readonly string[], system: Pick<System, "run">): Promise<string> {
  if (!existsSync(argv[0] ?? "")) return "";
  const { status, stdout } = await system.run(argv, { timeoutMs: answerMs });
  return status === 0 ? stdout : "";
}

/** How the package of a file is updated on this machine, as a sentence; undefined if no package owns it. */
export async function findOwner(path: string, system: Pick<System, "run">): Promise<string | undefined> {
  const updateWith = (command: string) => `Update it with: ${command}`;
  if (path.startsWith("/nix/store/")) return updateWith("nix profile upgrade");
  if (path.startsWith("/snap/")) return updateWith("snap refresh");
  if (path.includes("/Cellar/")) return updateWith("brew upgrade");
  for (const { program, query, nameForm, update, fromFile } of owners) {
    if (!existsSync(program)) continue;
    const { status, stdout } = await system.run([program, ...query, path]);
    const name = status === 0 ? nameForm.exec(stdout.trim())?.[1] : undefined;
    if (name === undefined) continue;
    if (fromFile === undefined || (await fromFile.isOffered(name, system))) return updateWith(update(name));
    return `No package repository of this machine has ${name}: get the file of the newer package, then: ${fromFile.install(name)}`;
  }
  return undefined;
}
