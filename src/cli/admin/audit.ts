// `agent admin audit verify`: verifies that the audit log is unchanged.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onData } from "./data.ts";
import type { Implementation } from "../command.ts";
import { dataFlags } from "../server-flags.ts";

export const verify: Implementation = {
  notes:
    "Prints the hash of the last event of each chain. Keep a copy elsewhere: as long as the log holds an event with\n" +
    "this hash, no event before it was changed. Exit status 1 if a chain is broken.",
  args: dataFlags,
  examples: [`${brand.executable} admin audit verify`],
  async run(context) {
    const { verifyChains } = await import("../../server/audit/read.ts");
    const chains = await onData(context, ({ db }) => verifyChains(db));
    const broken = chains.find((each) => each.brokenAt !== null);
    if (broken !== undefined) {
      const log =
        broken.organization === null ? "the log of the operator" : `the log of ${broken.organization}`;
      throw new AppError("failed", `The audit log was changed: ${log}, event ${broken.brokenAt}`, {
        hint: "Compare it with a backup. Events that webhooks delivered hold the original hashes, too.",
      });
    }
    const lines = chains.map(
      (each) => `${each.organization ?? "(operator)"}\t${each.events} events\t${each.head}\n`,
    );
    const shown = chains.map(({ organization, events, head }) => ({ organization, events, head }));
    context.output.result({ chains: shown }, lines.join(""));
  },
};
