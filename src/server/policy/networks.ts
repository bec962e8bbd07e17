// Validates the overlay networks of an organization: their form, and that both have room for the same nodes.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { lastHost, maskNetwork, parseNetwork, specialNetwork } from "../../ip.ts";
import { foreignText } from "../../text.ts";

export const overlayNetwork = (family: 4 | 6) =>
  v.pipe(
    foreignText(64),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const network = parseNetwork(dataset.value);
      const masked = maskNetwork(dataset.value);
      if (network === undefined && masked !== undefined) {
        addIssue({ message: `${dataset.value} has host bits set. Did you mean ${masked}?` });
      } else if (network?.family !== family) {
        addIssue({
          message: `Enter an IPv${family} network such as ${family === 4 ? "10.77.0.0/16" : "fd77::/64"}.`,
        });
      } else if (lastHost(network) < 2)
        addIssue({ message: "The network is too small: it needs room for two nodes." });
      else {
        const taken = specialNetwork(network);
        if (taken !== undefined)
          addIssue({
            message: `${network.text} overlaps ${taken}, which has a special meaning. Enter a private network such as ${family === 4 ? "10.77.0.0/16" : "fd77::/64"}.`,
          });
      }
    }),
    v.transform((text) => parseNetwork(text)?.text ?? text),
  );

export const narrowNetwork6 = "The IPv6 network must have room for as many nodes as the IPv4 network.";

/** A node has the same host number in both networks. Throws validation_failed. */
export function checkRoom(network: string, network6: string | undefined): void {
  if (network6 === undefined || !isNarrower(network6, network)) return;
  throw new AppError("validation_failed", "The request does not hold what it should.", {
    errors: { network6: [narrowNetwork6] },
  });
}

export function isNarrower(text6: string, text: string): boolean {
  const [network6, network] = [parseNetwork(text6), parseNetwork(text)];
  return network6 !== undefined && network !== undefined && lastHost(network6) < lastHost(network);
}
