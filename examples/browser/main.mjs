// The page's code on Node:
//   node main.mjs publish WS-URL TOPIC                        each line of standard input
//   node main.mjs follow WS-URL PATTERN STATE-FILE [COUNT]    from the first event, or where it was
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { follow, publish } from "./events.mjs";

const mqtt = createRequire(import.meta.url)("mqtt");
const [command, url, topic, file, count] = process.argv.slice(2);

if (command === "publish") {
  const lines = readFileSync(0, "utf-8").split("\n").filter((line) => line);
  await publish(mqtt, url, topic, lines);
  for (const line of lines) console.log("OK", line);
} else {
  let left = Number(count ?? 0);
  const position = existsSync(file) ? readFileSync(file, "utf-8") : undefined;
  const stop = follow(mqtt, url, topic, position, (id, where, content) => {
    console.log(id, where, content);
    writeFileSync(file + ".new", id);
    renameSync(file + ".new", file);
    if (--left === 0) stop();
  });
}
