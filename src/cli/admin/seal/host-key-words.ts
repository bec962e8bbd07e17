// Compares the words of host keys before a signer certifies them: a control plane that was taken over could name another key.

import type { Sealable } from "../../../api/certificates/seals.ts";
import { AppError } from "../../../base/errors.ts";
import { brand } from "../../../brand.ts";
import type { Context } from "../../command.ts";

/**
 * Throws untrusted_answer if the words that the signer has for a node are not those of the key to be certified. They come from
 * the machine itself, by --words or typed: the control plane would give those of its own key.
 */
export async function requireWords(context: Context, nodes: readonly Sealable[]): Promise<void> {
  const { values, system } = context;
  const { hasWords } = await import("../../../server/config/seal-warnings.ts");
  const given = new Map(
    values.list("words").map((each) => [each.split("=")[0], each.slice(each.indexOf("=") + 1)]),
  );
  for (const node of nodes) {
    const wordsGiven = given.get(node.name);
    if (wordsGiven === undefined && !system.stdinIsTerminal)
      throw new AppError(
        "usage",
        `Give the words of the host key of ${node.name} with --words '${node.name}=WORDS'`,
        { hint: howToWords },
      );
    const areRight = wordsGiven === undefined ? await askWords(context, node) : hasWords(node, wordsGiven);
    if (!areRight) throw new AppError("untrusted_answer", wrongWords(node), { hint: compareWords });
  }
}

const howToWords = `On the machine, as root: \`${brand.executable} key-words\``;
const wrongWords = ({ name }: Sealable) =>
  `These are not the words of the key that the control plane says ${name} has`;
const compareWords =
  "Compare them with the machine again. If they are right, the control plane asks for a certificate for another key: do not sign.";
const maxTries = 3;

/** Whether the user types the right words: a slip in one must not cost the words of the nodes before. */
async function askWords({ system, output }: Context, node: Sealable): Promise<boolean> {
  const { ask } = await import("../../ask.ts");
  const { hasWords } = await import("../../../server/config/seal-warnings.ts");
  for (let tries = 1; ; tries++) {
    output.say(howToWords);
    const question = { text: `Words of the host key of ${node.name}: `, isSecret: false };
    const [typed = ""] = await ask([question], system);
    if (hasWords(node, typed)) return true;
    if (tries === maxTries) return false;
    output.say(`${wrongWords(node)}. ${compareWords}`);
  }
}
