// Completes our command lines in sentences: each gets the places in use, because without them it would work on
// another configuration root or other data. All sentences pass here, so no hint repeats the flags.

import { brand } from "../brand.ts";
import { quoteWord } from "../base/quote.ts";
import { dataFlagsOf } from "./server/server-flags.ts";
import type { Values } from "./values.ts";

/** Commands that read neither the configuration root nor the data of a control plane. */
export const elsewhere = ["login", "logout", "whoami", "help", "demo", "completion", "setup"];
/** Commands that read the data of a control plane. All others read the configuration root. */
const onData = ["admin", "serve"];

/** Adds the places of this command line to the commands in a sentence, which stand in backticks. */
export function placesOf(values: Values): (sentence: string) => string {
  const root = values.text("config-root");
  const rootFlag = root === undefined ? "" : ` --config-root ${quoteWord(root)}`;
  const dataFlags = dataFlagsOf(values);
  if (rootFlag === "" && dataFlags === "") return (sentence) => sentence;
  const line = new RegExp(`\`((?:sudo )?${brand.executable} ([a-z-]+)[^\`]*)\``, "g");
  return (sentence) =>
    sentence.replace(line, (whole, command: string, name: string) => {
      const isOnData = onData.includes(name);
      const namesItsPlace = isOnData
        ? /--(help|data-dir|database-url|api-base|local)\b/
        : /--(help|config-root)\b/;
      if (elsewhere.includes(name) || namesItsPlace.test(command)) return whole;
      return `\`${insert(command, isOnData ? dataFlags : rootFlag)}\``;
    });
}

/** The flags stand before "…", a placeholder that the user fills in. */
const insert = (command: string, flags: string) =>
  command.endsWith(" …") ? `${command.slice(0, -2)}${flags} …` : `${command}${flags}`;
