"""The numbers that the paper reports, to stand beside a run's own and never among them.

Source: "Learning How to Remember: Memory Modality Selection for GUI Agents" (arXiv 2610.17928).
"""

SOURCE = "Learning How to Remember: Memory Modality Selection for GUI Agents, arXiv 2610.17928"

BENCHMARKS = ("AITW", "LearnGUI", "MobileMiniWoB++")

ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("SwitchMem, Qwen3.5-9B", "51.420", "38.131", "63.043"),
    ("best fixed condition", "Image 49.300", "Image 37.441", "Both 60.870"),
    ("oracle", "55.9", "43.4", "–"),
    (
        "difference, 95 % CI",
        "+2.120 [1.270, 2.945], p < .001",
        "+0.690 [0.149, 1.263], p = .016",
        "+2.174 [−3.261, 7.609], p = .688",
    ),
    ("SwitchMem, seconds per step (over Image)", "1.407 (+0.128)", "1.848 (+0.190)", "1.862 (+0.304)"),
    ("SwitchMem, UI-TARS-7B-SFT", "33.680", "41.055", "36.957"),
    ("its best fixed condition", "Text 32.640", "Image 40.997", "Image 33.696"),
    ("wins of Text / Image on non-tied steps, %", "48.0 / 52.0", "47.7 / 52.3", "–"),
    ("RAG-GUI", "18.300 (8.815 s per step)", "11.118 s per step", "–"),
    ("M3A", "17.200", "–", "–"),
    ("AppAgent", "14.780", "–", "–"),
)
"""Name of a row, then its value on each of `BENCHMARKS`; scores in percent."""
