// The files of a package beside the executable: units, group, kernel setting, man pages, completions, documents.

import { gzipSync } from "node:zlib";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { brand, defaultPlaces, releaseAddressPath } from "../src/brand.ts";
import { run } from "../src/cli/run.ts";
import { allCommands } from "../src/cli/commands.ts";
import {
  authTimer,
  authUnit,
  daemonUnit,
  edgeTemplate,
  packagedUnitDirectory,
  templateUnit,
} from "../src/platform/systemd/systemd.ts";
import {
  authService,
  authTimerUnit,
  daemonService,
  edgeService,
  engineTemplate,
} from "../src/platform/systemd/units.ts";
import {
  controlService,
  controlSysctl,
  controlUnit,
  packagedSysctlPath,
} from "../src/platform/systemd/control-unit.ts";
import { realSystem } from "../src/base/system.ts";
import { manPages } from "./man-pages.ts";

/** `timeS`: of the commit. */
export type Edition = {
  version: string;
  timeS: number;
  /** Where the publisher's releases are. */
  releaseUrl?: string;
  /** Packages in a second or two, twice as large. */
  fast?: boolean;
};
export type PackageFile = { dst: string; content: string | Uint8Array };

export const summary = "node manager for private overlay networks";

const { executable, id } = brand;

export async function sharedFiles(edition: Edition): Promise<PackageFile[]> {
  const doc = `/usr/share/doc/${id}`;
  const license = readFileSync(join(import.meta.dir, "../LICENSE"), "utf8");
  const bash = await printed("completion", "bash");
  const zsh = await printed("completion", "zsh");
  const fish = await printed("completion", "fish");
  return [
    ...units(),
    ...(edition.releaseUrl === undefined
      ? []
      : [{ dst: releaseAddressPath(`/usr/bin/${executable}`, "linux"), content: `${edition.releaseUrl}\n` }]),
    { dst: `/usr/lib/sysusers.d/${id}.conf`, content: group },
    { dst: packagedSysctlPath, content: controlSysctl },
    ...(await pages(edition)),
    { dst: `/usr/share/bash-completion/completions/${executable}`, content: bash },
    { dst: `/usr/share/fish/vendor_completions.d/${executable}.fish`, content: fish },
    // The places of Debian and of Fedora.
    { dst: `/usr/share/zsh/vendor-completions/_${executable}`, content: zsh },
    { dst: `/usr/share/zsh/site-functions/_${executable}`, content: zsh },
    { dst: `${doc}/copyright`, content: copyright(license) },
    { dst: `${doc}/changelog.Debian.gz`, content: gzipped(changelog(edition)) },
    { dst: `/usr/share/lintian/overrides/${id}`, content: overrides },
  ];
}

/** With the default places, as \`agent install-systemd\` would write them on a machine with the engine of its distribution. */
function units(): PackageFile[] {
  const usual = defaultPlaces("linux", {});
  const [engine = ""] = usual.packagedEngines;
  const places = { ...usual, executable: `/usr/bin/${executable}`, engine };
  return [
    [daemonUnit, daemonService(places)],
    [templateUnit, engineTemplate(places)],
    [edgeTemplate, edgeService(places)],
    [authUnit, authService(places)],
    [authTimer, authTimerUnit()],
    // Of the usual port. `setup` writes its own unit for a port from 1024 on.
    [controlUnit, controlService(places.executable, true)],
  ].map(([name = "", content = ""]) => ({ dst: `${packagedUnitDirectory}/${name}`, content }));
}

async function pages({ version, timeS }: Edition): Promise<PackageFile[]> {
  const helps = await Promise.all(
    Object.entries(await allCommands()).map(async ([name, { meta }]) => {
      return { name, summary: meta.description, help: await printed(...name.split(" "), "--help") };
    }),
  );
  const date = new Date(timeS * 1000).toISOString().slice(0, 10);
  return manPages(helps, await printed("help", "commands"), { version, date }).map(({ file, text }) => ({
    dst: `/usr/share/man/man1/${file}.gz`,
    content: gzipped(text),
  }));
}

/** What a command prints on any machine with Linux. */
async function printed(...words: string[]): Promise<string> {
  let text = "";
  const ignored = { write: () => undefined, isTerminal: false, columns: 80 };
  const stdout = { ...ignored, write: (part: string) => void (text += part) };
  const system = { ...realSystem(), platform: "linux", env: {}, stdout, stderr: ignored } as const;
  const status = await run(words, system);
  if (status !== 0) throw new Error(`${executable} ${words.join(" ")} ended with ${status}`);
  return text;
}

/** Without a time in its header. */
function gzipped(text: string): Uint8Array {
  return gzipSync(text, { level: 9 });
}

const group = `# Members may start and stop tunnels without sudo.
g ${id} -
`;

const overrides = `# The executable holds its program behind the machine code: a stripped one would be empty.
${id}: unstripped-binary-or-object [usr/bin/${executable}]
# The runtime is built elsewhere, with libraries of its own, and without these options of the linker.
${id}: embedded-library *
${id}: hardening-no-relro [usr/bin/${executable}]
${id}: hardening-no-pie [usr/bin/${executable}]
# There is no debhelper here. The scripts restart the daemon alone, which leaves its tunnels running.
${id}: maintainer-script-calls-systemctl *
# It is not in the archive of Debian.
${id}: initial-upload-closes-no-bugs *
# A purge asks the same script as on systems without getent whether the group is there.
${id}: maintainer-script-should-not-parse-etc-passwd-or-group *
`;

function copyright(license: string): string {
  const text = license.trim().split("\n").slice(2);
  const indented = text.map((line) => (line.trim() === "" ? " ." : ` ${line}`));
  return `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ${id}
Source: https://github.com/overlay-agent/agent

Files: *
Copyright: 2026 The ${brand.title} authors
License: MIT

License: MIT
${indented.join("\n")}
`;
}

function changelog({ version, timeS }: Edition): string {
  const date = new Date(timeS * 1000).toUTCString().replace("GMT", "+0000");
  return `${id} (${version}-1) stable; urgency=medium

  * See https://github.com/overlay-agent/agent/blob/v${version}/CHANGELOG.md

 -- ${maintainer}  ${date}
`;
}

export const maintainer = `${brand.title} <overlay-agent@users.noreply.github.com>`;
