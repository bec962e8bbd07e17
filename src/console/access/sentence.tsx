// Rules and tests as sentences, whose names stand out. Other pages show them, too: nothing of the page Access is needed here.

import { endsOf, sideWords, trafficWords, verbOf, type Rule } from "./rules.ts";
import { verbOfTest, type PolicyTest } from "./test-text.ts";

export function Sentence({ rule }: { rule: Rule }) {
  return flow(endsOf(rule), `may ${verbOf(rule)}`, rule);
}

export const TestSentence = ({ test }: { test: PolicyTest }) => flow(test, verbOfTest(test), test);

function flow(
  { from, to }: { from: string; to: string },
  verb: string,
  rule: Parameters<typeof trafficWords>[0],
) {
  const traffic = <strong>{trafficWords(rule)}</strong>;
  return (
    <span>
      <SideName word={from} /> {verb} <SideName word={to} /> on {traffic}
    </span>
  );
}

function SideName({ word }: { word: string }) {
  const { before, name } = sideWords(word);
  return (
    <>
      {before}
      <strong>
        <bdi>{name}</bdi>
      </strong>
    </>
  );
}

/** The differing parts, in both versions. */
export function Description({ before, after }: { before: Rule; after: Rule }) {
  const [old, now] = [before.description, after.description];
  if (old === now) return now === "" ? null : <bdi>{now}</bdi>;
  return (
    <>
      {old === "" ? null : (
        <>
          <del>
            − <bdi>{old}</bdi>
          </del>{" "}
        </>
      )}
      {now === "" ? null : (
        <ins>
          + <bdi>{now}</bdi>
        </ins>
      )}
    </>
  );
}
