//! A line that turns a utilization into a score, as several plugins' arguments describe it.

use serde::Deserialize;
use supercargo_framework::plugin::MAX_NODE_SCORE;
use supercargo_framework::registry::ArgsError;

/// The highest score of a point, which stands for [`MAX_NODE_SCORE`].
const MAX_POINT_SCORE: i64 = 10;

/// A corner of the line, as arguments have it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ShapePoint {
    utilization: i32,
    score: i32,
}

/// A corner of the line.
#[derive(Clone, Copy)]
struct Point {
    /// How full, in percent.
    utilization: i64,
    /// The score there, up to [`MAX_NODE_SCORE`].
    score: i64,
}

/// The line; it has at least one corner.
pub(crate) struct Shape(Box<[Point]>);

impl Shape {
    /// Checks the corners, which are at this path of the arguments.
    pub(crate) fn parse(points: &[ShapePoint], path: &str) -> Result<Self, ArgsError> {
        if points.is_empty() {
            return Err(ArgsError::new(path, "must have at least one point"));
        }
        for (i, pair) in points.windows(2).enumerate() {
            if pair[0].utilization >= pair[1].utilization {
                return Err(ArgsError::new(
                    format!("{path}[{}].utilization", i + 1),
                    format!(
                        "{} must be greater than that of the point before: points go up strictly",
                        pair[1].utilization
                    ),
                ));
            }
        }
        for (i, point) in points.iter().enumerate() {
            for (field, value, max) in [
                ("utilization", i64::from(point.utilization), 100),
                ("score", i64::from(point.score), MAX_POINT_SCORE),
            ] {
                if !(0..=max).contains(&value) {
                    return Err(ArgsError::new(
                        format!("{path}[{i}].{field}"),
                        format!("{value} is out of range: must be from 0 to {max}"),
                    ));
                }
            }
        }
        let corners = points.iter().map(|point| (i64::from(point.utilization), i64::from(point.score)));
        Ok(Self::through(corners))
    }

    /// The straight line from the best score when nothing is used to 0 when all is.
    pub(crate) fn least_used() -> Self {
        Self::through([(0, MAX_POINT_SCORE), (100, 0)])
    }

    fn through(corners: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let point =
            |(utilization, score)| Point { utilization, score: score * (MAX_NODE_SCORE / MAX_POINT_SCORE) };
        Self(corners.into_iter().map(point).collect())
    }

    /// The height of the line; flat before the first corner and after the last.
    pub(crate) fn at(&self, utilization: i64) -> i64 {
        let points = &self.0;
        match points.partition_point(|point| point.utilization < utilization) {
            0 => points[0].score,
            i if i == points.len() => points[i - 1].score,
            i => {
                let (left, right) = (points[i - 1], points[i]);
                let run = right.utilization - left.utilization;
                left.score + (right.score - left.score) * (utilization - left.utilization) / run
            }
        }
    }
}
