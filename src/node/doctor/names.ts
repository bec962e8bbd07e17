// Examines whether programs of this machine find the names of nodes.

import { brand } from "../../brand.ts";
import type { System } from "../../system.ts";
import { areNamesOn } from "../enroll/services.ts";
import { refuseForeignHosts } from "../names/keep-names.ts";
import { agrees, askSystem, readNamesState } from "../names/look.ts";
import { maxHostsNames } from "../names/machine-names.ts";
import { fail, ok, skipped, warn, type Finding } from "./check.ts";

const run = brand.executable;
const restart = `systemctl restart ${brand.id}-names`;

export async function examineNames(
  {
    configRoot,
    path,
    isOn = areNamesOn(),
    owner = 0,
  }: { configRoot: string; path: string; isOn?: boolean; owner?: number },
  system: Pick<System, "lookup" | "sleep" | "now">,
): Promise<Finding> {
  const state = readNamesState(configRoot, path);
  if (!isOn && state.block === undefined && state.fault === undefined)
    return skipped(`off: \`${run} names --on\``);
  refuseForeignHosts(path, owner);
  if (state.fault !== undefined)
    return fail(`${path}: ${state.fault}`, "Remove the lines of the block by hand");
  if (!isOn) return warn(`${path} has names, but the service is not installed`, `${run} names --clear`);
  if (!state.isCurrent) return warn(`the names in ${path} are not current`, restart);
  const shown = state.names.find(({ names }) => names.some((name) => !state.taken.has(name)));
  const name = shown?.names.find((each) => !state.taken.has(each));
  if (shown === undefined || name === undefined) return ok("on; there are no names yet");
  const answer = await askSystem(name, state, system);
  if (answer.source === "none") {
    return fail(
      `the C library does not find ${name}, which is in ${path}`,
      'The line "hosts:" of /etc/nsswitch.conf needs "files"',
    );
  }
  if (!agrees(shown, answer)) {
    return fail(
      `${name} is ${shown.addresses.join(", ")}, but programs get ${answer.answers.join(", ")}`,
      'Another program answers first: "files" must be the first source in the line "hosts:" of /etc/nsswitch.conf',
    );
  }
  if (state.leftOut > 0) {
    return warn(
      `${path} has ${maxHostsNames} names; ${state.leftOut} more do not fit`,
      `${run} names lists all; \`${run} admin org update ORG --names rules\` shows a node fewer`,
    );
  }
  return ok(`${name} is found through ${path}`);
}
