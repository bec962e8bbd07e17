// `agent admin audit verify`: proves that the audit log is as it was written.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onData } from "./data.ts";
import type { Command } from "../command.ts";
import { dataFlags } from "../server-flags.ts";

export const verify: Command = {
  name: "admin audit verify",
  summary: "Check the hash chains of the audit log",
  notes:
    "Prints the hash of each chain's last event. Note it down elsewhere: an event that is still there with that " +
    "hash shows later that nothing up to it was changed. Exit 1 if a chain is broken.",
  flags: dataFlags,
  examples: [`${brand.executable} admin audit verify`],
  async run(context) {
    const { verifyChains } = await import("../../server/audit/read.ts");
    const chains = await onData(context, ({ db }) => verifyChains(db));
    const broken = chains.find((each) => each.brokenAt !== null);
    if (broken !== undefined) {
      const whose = broken.organization === null ? "the operator's log" : `the log of ${broken.organization}`;
      throw new AppError("failed", `The audit log was changed: ${whose}, event ${broken.brokenAt}`, {
        hint: "Compare it with a backup; what was delivered by webhooks holds the original hashes.",
      });
    }
    const lines = chains.map(
      (each) => `${each.organization ?? "(operator)"}\t${each.events} events\t${each.head}\n`,
    );
    const shown = chains.map(({ organization, events, head }) => ({ organization, events, head }));
    context.output.result({ chains: shown }, lines.join(""));
  },
};
