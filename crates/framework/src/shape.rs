//! A piecewise linear function from utilization to score, configured in arguments of several
//! plugins.

use serde::Deserialize;

use crate::plugin::MAX_NODE_SCORE;
use crate::registry::ArgsError;

/// The maximum score of a point, which maps to [`MAX_NODE_SCORE`].
const MAX_POINT_SCORE: i64 = 10;

/// A point of the function, as configured.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShapePoint {
    utilization: i32,
    score: i32,
}

/// A corner of the line.
#[derive(Clone, Copy)]
struct Corner {
    /// How full, in percent.
    utilization: i64,
    /// The score at this point, up to [`MAX_NODE_SCORE`].
    score: i64,
}

/// The function; it has at least one point.
pub struct Shape(Box<[Corner]>);

impl Shape {
    /// Validates the points at this path of the arguments.
    pub fn parse(points: &[ShapePoint], path: &str) -> Result<Self, ArgsError> {
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

    /// The line from the maximum score at 0 % to 0 at 100 %.
    pub fn least_used() -> Self {
        Self::through([(0, MAX_POINT_SCORE), (100, 0)])
    }

    fn through(corners: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let point =
            |(utilization, score)| Corner { utilization, score: score * (MAX_NODE_SCORE / MAX_POINT_SCORE) };
        Self(corners.into_iter().map(point).collect())
    }

    /// The score of a utilization; constant before the first point and after the last.
    pub fn at(&self, utilization: i64) -> i64 {
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
