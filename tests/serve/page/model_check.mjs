// Changes of a network as JSON, without a browser: node model_check.mjs FOLDER_OF_THE_PAGE < networks, with what is done
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.js`));
const [model, grid] = await Promise.all(["model", "grid"].map(load));
const answers = JSON.parse(readFileSync(0, "utf8")).map(({ net, steps, ask }) => {
  if (ask) return (model[ask[0]] ?? grid[ask[0]])(...(net ? [model.complete(net)] : []), ...ask.slice(1));
  return model.sent(steps.reduce((made, [name, ...given]) => [model[name](made, ...given)].flat()[0], model.complete(net)));
});
process.stdout.write(JSON.stringify(answers, (_, x) => (Number.isNaN(x) ? "NaN" : x)));
