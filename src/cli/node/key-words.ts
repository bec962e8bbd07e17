// `agent key-words`: what a signer types before this machine's host key gets a certificate of the offline CA.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { wordArg } from "../values.ts";

export const command: Implementation = {
  notes: `A signer types these words into \`${brand.executable} admin seal sign\`. Tell them by a way that the control plane has no part in. As root.`,
  args: {
    ORG: wordArg("The organization's slug (default: the only one)", { required: false }),
  },
  examples: [`${brand.executable} key-words acme`],
  async run({ settings, words, output }) {
    const { chooseOne } = await import("../../daemon/asking/choose-slugs.ts");
    const { openOrganization } = await import("../../node/files/organizations.ts");
    const { hostKeyWords } = await import("../../node/enroll/host-key-words.ts");
    const slug = chooseOne(settings.configRoot, words[0]);
    const { config, directory } = openOrganization(settings.configRoot, slug);
    const { words: keyWords, fingerprint } = hostKeyWords(directory);
    output.result(
      { team: slug, name: config.name, words: keyWords, fingerprint },
      `${config.name}: ${keyWords.join(" ")}\n`,
    );
  },
};
