// `agent admin diff`: what the next configuration of a node changes, for a machine that was away or refuses its files.

import type { AnswerOf } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { brand } from "../../brand.ts";
import { printable, tableLine } from "../../base/log.ts";
import type { Implementation } from "../command.ts";
import { orgArg } from "../server/server-flags.ts";
import { read } from "./api.ts";
import { nodeArg, nodeByName } from "./lookup.ts";

type NextChanges = AnswerOf<typeof nodesApi.diff>;

export const command: Implementation = {
  notes:
    "Compares the files that the node applied with those that it would get now. Blocked certificates are shown by their number; overrides on the machine itself are not seen. A machine shows its own view with `sync-config --dry-run`.",
  args: { ...orgArg, ...nodeArg },
  examples: [`${brand.executable} admin diff acme laptop`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const found = await read(context, async (api) => {
      const { id } = await nodeByName(api, slug, name);
      return api.call(nodesApi.diff, { slug, id });
    });
    context.output.result(found, textOf(found));
  },
};

function textOf(found: NextChanges): string {
  const parts = found.changes.map(
    ({ file, diff }) => tableLine([file]) + printable(diff ?? "It changes. It is too long to be compared.\n"),
  );
  const renewal = found.is_renewal_due
    ? "Its certificates are due: it gets new ones with its next check-in.\n"
    : "";
  return `${tableLine([summaryOf(found)])}${parts.join("")}${renewal}`;
}

function summaryOf(found: NextChanges): string {
  const { name, online, changes, is_known } = found;
  const [applied, next] = [found.applied_config_version, found.config_version];
  if (applied !== null && applied >= next)
    return `${name} has the newest configuration, ${next}: nothing changes.`;
  const offline =
    found.last_checkin_at === null ? "it has not checked in yet" : `last check-in ${found.last_checkin_at}`;
  const has = `${name} has configuration ${applied ?? "unknown"} of ${next} (${online ? "online" : offline}).`;
  if (!is_known)
    return `${has} The control plane does not know which files it has: see \`${brand.executable} sync-config --dry-run\` on the machine.`;
  return changes.length === 0 ? `${has} Its files stay the same.` : `${has} Its files change:`;
}
